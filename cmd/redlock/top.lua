-- What redlock top reads of some locks, in one command. It only reads, and needs no rights that a lock does not need.
--
-- KEYS   for each lock: its key, and the queue of its waiters
--
-- Reply: the time in microseconds, and four values for each lock
--   owner     the owner token, which has at most 1579 bytes; "": nobody has the key; "?": the key is no string
--   left      milliseconds; negative: it does not expire
--   waiters   how many clients are in the queue, at most 100
--   since     when the first of them began to wait, microseconds; "0": there is none

local time = redis.call('TIME')
local reply = {string.format('%.0f', time[1] * 1000000 + time[2])}
for i = 1, #KEYS, 2 do
  local owner = redis.pcall('GET', KEYS[i])
  if type(owner) == 'string' then owner = string.sub(owner, 1, 1600) elseif owner then owner = '?' else owner = '' end
  local left = owner ~= '' and redis.call('PTTL', KEYS[i]) or 0
  local waiters = redis.pcall('ZRANGE', KEYS[i + 1], 0, 99)
  local first, since = waiters[1], '0'
  if first then since = redis.call('ZSCORE', KEYS[i + 1], first) or '0' end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[#reply + 4] = owner, left, #waiters, since
end
return reply
