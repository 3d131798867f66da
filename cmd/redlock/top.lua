-- What redlock top reads of some locks, in one command. It only reads, and needs no rights that a lock does not need.
--
-- KEYS   for each lock: its key, and the queue of its waiters
--
-- Reply: the time in microseconds, and four values for each lock
--   owner     the owner token, which has at most 1579 bytes; "": nobody has the key; "?": the key has no string, or an
--             empty one. If several share the lock (S1), it is a list, as no string of another program can be: "readers" or
--             "permits", and the first 32 bytes of their tokens, at most 100. None: it is reserved. The list is "unread"
--             if the user may not read the key
--   left      milliseconds; negative: it does not expire
--   waiters   the names of the clients in the queue, at most 100
--   since     when the first of them began to wait, microseconds; "0": there is none

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- isUnread reports whether a key could not be read: a wrong type is an answer.
local function isUnread(reply) return reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) end

-- Those that share the lock, and until when the last of them has it; nil if nobody shares it.
local function sharers(key)
  local entries = redis.pcall('ZRANGE', key, 0, 99, 'WITHSCORES')
  if isUnread(entries) then return {'unread'}, 0 end
  if entries.err or #entries == 0 then return nil end
  local kind, all, last = nil, {}, 0
  for i = 1, #entries, 2 do
    local ends = tonumber(entries[i + 1])
    local token = string.match(entries[i], '^reader (%x+)')
    if token then kind = 'readers' else
      token = string.match(entries[i], '^permit %S+ (%x+)')
      if token or string.find(entries[i], '^permit %S+ next:%x+$') then kind = 'permits' end
    end
    if token and ends > now then all[#all + 1], last = string.sub(token, 1, 32), math.max(last, ends) end
  end
  return kind and {kind, unpack(all)}, (last - now) / 1000
end

local reply = {string.format('%.0f', now)}
for i = 1, #KEYS, 2 do
  local owner = redis.pcall('GET', KEYS[i])
  local left
  if type(owner) == 'string' then
    owner = owner == '' and '?' or string.sub(owner, 1, 1600)
  elseif owner and isUnread(owner) then
    owner, left = {'unread'}, 0
  elseif owner then
    owner, left = sharers(KEYS[i])
    owner = owner or '?'
  else
    owner = ''
  end
  if left then left = math.floor(math.max(0, left)) else left = owner ~= '' and redis.call('PTTL', KEYS[i]) or 0 end
  local waiters = redis.pcall('ZRANGE', KEYS[i + 1], 0, 99)
  if waiters.err then waiters = {} end
  local first, since = waiters[1], '0'
  if first then since = redis.call('ZSCORE', KEYS[i + 1], first) or '0' end
  for j, name in ipairs(waiters) do waiters[j] = string.sub(name, 1, 64) end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[#reply + 4] = owner, left, waiters, since
end
return reply
