-- Entries (protocol step S1): what a lock that several may share has under its key. These functions stand in front of the
-- scripts that need them (script.go); they are no script of their own.
--
-- The key is a sorted set: entry -> when it ends, in microseconds of this server's TIME.
--   "reader <owner token>"               a reader
--   "permit <slots>/<P> <owner token>"   who has these slots, separated by commas, of a semaphore with P permits
--   "permit <slot>/<P> next:<id>"        a slot that is reserved for a waiter (W2)
-- All entries of a key are of one kind. The key expires when its last entry ends, and Redis deletes an empty set. To
-- everything else the key is taken, as any key that is there: to a mutex, and to other libraries.
--
-- Besides, for each such key
--   redlock:shared:<key>   the waiters that may share it, a part of redlock:wait:<key>: the same members and scores
--   redlock:rw:<key>       the intent of a waiting writer (S2): "next:<id> <since when, microseconds>", or, of one that
--                          waits in order of arrival, "fair:<id>:<number> <ticket>". Where several wait, one of them at least
--                          without order of arrival, it is nobody's: 32 zeros behind "next:", or behind "fair:" if one
--                          waits in order of arrival. So none of them takes it along when it leaves. Its time is the
--                          earliest of theirs

local function slotsOf(entry) return string.gmatch(string.match(entry, '^permit (%S+)/'), '%d+') end
local function permitsOf(entry) return tonumber(string.match(entry, '/(%d+) ')) end
local function whole(n) return string.format('%.0f', n) end

-- isUnread reports whether a key could not be read, most likely for a missing right. Then what it has is unknown, and not
-- another's. A wrong type is an answer.
local function isUnread(reply)
  return type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- look says what the key has: 'free', 'string' and its value, 'reader' or 'permit', or 'other' if it is no lock. It drops
-- the entries that have ended. If the key cannot be read, the script ends with that error.
local function look(key, now)
  local value = redis.pcall('GET', key)
  if not value then return 'free' end
  if type(value) == 'string' then return 'string', value end
  local first = redis.pcall('ZRANGE', key, 0, 0)
  local kind = kindOf(first[1])
  if not kind then
    if isUnread(value) then redis.call('GET', key) end -- fails in the server's words
    if isUnread(first) then redis.call('ZRANGE', key, 0, 0) end
    return 'other'
  end
  if redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now)) > 0 and redis.call('EXISTS', key) == 0 then return 'free' end
  return kind
end

-- intentOf is a waiting writer's intent, or ''. Something that another program wrote there is none, and is overwritten by
-- the next one.
local function intentOf(key)
  local intent = redis.pcall('GET', key)
  return type(intent) == 'string' and intent or ''
end

-- nobody has the intent of several writers, of whom one waits in order of arrival.
local nobody = 'fair:' .. string.rep('0', 32)

-- taken has the owner of each slot that is taken, and how many these are, without those of this owner; and when the first
-- entry ends, the largest number of permits that an entry names, and for whom a slot is reserved.
local function taken(key, but)
  local entries, owners, count, ends, largest, next = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}, 0, nil, 0, nil
  for i = 1, #entries, 2 do
    local slots, permits, owner = string.match(entries[i], '^permit (%S+)/(%d+) (%S+)$')
    if owner ~= but then
      if string.find(slots, ',', 1, true) then
        for slot in slotsOf(entries[i]) do owners[slot], count = owner, count + 1 end
      else
        owners[slots], count = owner, count + 1
      end
      if string.sub(owner, 1, 5) == 'next:' then next = owner end
    end
    permits = tonumber(permits)
    if permits > largest then largest = permits end
    ends = ends or tonumber(entries[i + 1])
  end
  return owners, count, ends, largest, next
end

-- stateFor says what the key means to the owner of an entry: 'ours' if it has the entry, 'free' if the entry may be
-- added, and otherwise 'held', for how many milliseconds, and by whom.
local function stateFor(key, entry, now)
  local what, value = look(key, now)
  if what == 'free' then return 'free' end
  if what == 'string' then
    if value == ownerOf(entry) then return 'ours' end -- as the writer that now becomes a reader (S4)
    return 'held', redis.call('PTTL', key), value
  end
  if what ~= kindOf(entry) then return 'held', redis.call('PTTL', key), name(what) end
  if redis.call('ZSCORE', key, entry) then return 'ours' end
  if what == 'permit' then
    local owners = taken(key)
    for slot in slotsOf(entry) do
      if owners[slot] then return 'held', redis.call('PTTL', key), owners[slot] end
    end
  end
  return 'free'
end

-- expireWithLast has the key expire when its last entry ends. There may be none left.
local function expireWithLast(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if last then redis.call('PEXPIREAT', key, whole(math.ceil(tonumber(last) / 1000))) end
end

-- write adds the entry, with so many milliseconds from now, or makes it end later. It never makes it end sooner, also where
-- it takes the place of its writer's string (R1). It reports whether it took the place of that, or of a reservation (S4).
local function write(key, entry, now, ttl)
  local value = redis.pcall('GET', key)
  local alone = type(value) == 'string'
  if alone then
    if value == ownerOf(entry) then ttl = math.max(ttl, redis.call('PTTL', key)) end
    redis.call('DEL', key)
  end
  local ends = now + ttl * 1000
  local before = tonumber(redis.call('ZSCORE', key, entry) or 0)
  if before < ends then redis.call('ZADD', key, whole(ends), entry) end
  expireWithLast(key)
  return alone
end

-- drop deletes the entry, and reports whether it was there.
local function drop(key, entry)
  if redis.call('ZREM', key, entry) == 0 then return false end
  expireWithLast(key)
  return true
end

-- holdersOf is whom to tell of a new waiter: the owner, or the first entries. Where there are very many, the others learn of
-- it at their next renewal.
local function holdersOf(key)
  local owner = redis.pcall('GET', key)
  return type(owner) == 'string' and {owner} or redis.pcall('ZRANGE', key, 0, 127)
end

-- begin is called when the first reader or holder of permits has come in: those that wait and may come in too are told.
-- The intent was for the time before, so it goes. The first waiter of another kind is told as well: it asks, is
-- refused, and its intent keeps newcomers out from then on.
-- A server does nothing else meanwhile, so this looks at 1024 waiters at most, which takes about 2 ms. Each client has
-- one member for all its readers. Those further back ask by themselves, about every second.
local function begin(key, most)
  redis.call('DEL', 'redlock:rw:' .. key)
  local told, other = 0, false
  for _, member in ipairs(redis.pcall('ZRANGE', 'redlock:wait:' .. key, 0, 1023)) do
    if redis.pcall('ZSCORE', 'redlock:shared:' .. key, member) then
      if told < most then tell(member, key) end
      told = told + 1
    elseif not other then
      other = true
      tell(member, key)
    end
    if other and told >= most then break end
  end
end

-- pop takes the first waiter that listens from the queue, and tells it. It returns nothing if there is none, if 256 that have
-- gone were in front (release.lua), or if this client may not publish; and twice the time for a waiter that polls. That one may
-- be dead, so the waiter behind it is told whom the reservation is for (release.lua), and looks whether it was used.
local function pop(key, queue, keep, permit)
  for _ = 1, 256 do
    local first = redis.pcall('ZPOPMIN', queue .. key)
    local member = first[1]
    if not member then return end
    local listeners, polls = tell(member, key, permit), string.sub(member, -5) == ':poll'
    local fair = string.sub(member, 1, 5) == 'fair:'
    if type(listeners) ~= 'number' and not polls or fair and listeners > 0 then -- nothing is reserved for a fair lock
      redis.pcall('ZADD', queue .. key, first[2], member)
      redis.pcall('PEXPIRE', queue .. key, 10000) -- it may have been the only one: then the key is a new one
      return
    end
    redis.pcall('ZREM', 'redlock:wait:' .. key, member)
    local shares = redis.pcall('ZREM', 'redlock:shared:' .. key, member) == 1 or queue == 'redlock:shared:'
    if polls then
      local behind = redis.pcall('ZRANGE', queue .. key, 0, 0)[1]
      member = string.sub(member, 1, -6)
      if behind then tell(behind, key, member .. ' ' .. key) end
      return member, 2 * keep, shares
    end
    -- Without listeners, that client has gone: take the next one.
    if listeners > 0 then return member, keep, shares end
  end
end

-- reserve gives what an entry had to the first waiters, for a short time (W2): what is left of the lock, and if nobody
-- else shares it, all of it. The entry is gone already.
local function reserve(key, entry, keep, now)
  local left, next, shares = redis.call('EXISTS', key) == 1
  if kindOf(entry) == 'reader' then
    if left then return false end
    next, keep = pop(key, 'redlock:wait:', keep)
    if next then redis.call('SET', key, next, 'PX', keep) end
    return next ~= nil
  end
  local reserved = false
  for slot in slotsOf(entry) do
    local lasts
    next, lasts, shares = pop(key, left and 'redlock:shared:' or 'redlock:wait:', keep, 'permit ' .. slot .. ' ' .. key)
    if not next then break end
    reserved = true
    if not shares then -- it wants all of the lock, and can have it
      redis.call('SET', key, next, 'PX', lasts)
      break
    end
    left = true
    write(key, 'permit ' .. slot .. '/' .. permitsOf(entry) .. ' ' .. next, now, lasts)
  end
  return reserved
end
