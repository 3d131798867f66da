-- Plant (protocol step R2): put the lock keys and the fencing token back on a node that lacks them. Sent only after a
-- quorum extended the same lease.
--
-- KEYS[1]    redlock:fence
-- KEYS[2..]  the lock keys
-- ARGV[1]    owner token; of a reader or a holder of permits, its entry (entries.lua stands in front of this)
-- ARGV[2]    time to live, milliseconds
-- ARGV[3]    the lease's ballot; "0": no fencing tokens
-- ARGV[4..]  the fence slot of each lock key, in the order of KEYS
--
-- Replies
--   integer                           planted; this server's TIME in microseconds
--   {"held", time, pttl, owner, 0}    some key is another's; nothing was written

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local shares = kindOf(ARGV[1])
if shares then
  local state, left, owner = stateFor(KEYS[2], ARGV[1], now)
  if state == 'held' then return {'held', now, left, shown(owner), 0} end
  write(KEYS[2], ARGV[1], now, ARGV[2])
end

for i = 2, shares and 0 or #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if owner and owner ~= ARGV[1] then
    if type(owner) ~= 'string' then
      -- A key that could not be read is unknown, as in extend.lua.
      if isUnread(owner) then return owner end
      owner = nameOf(KEYS[i])
    end
    return {'held', now, redis.call('PTTL', KEYS[i]), shown(owner), 0}
  end
end

-- Never make a key's time shorter, as in extend.lua: another key of the lease may still be there.
for i = 2, shares and 0 or #KEYS do
  redis.call('SET', KEYS[i], ARGV[1], 'PX', math.max(redis.call('PTTL', KEYS[i]), tonumber(ARGV[2])))
end
if ARGV[3] ~= '0' then
  for i = 4, #ARGV do
    -- Never lower a slot: a later holder may have raised it for another name.
    if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0) < tonumber(ARGV[3]) then
      redis.call('ZADD', KEYS[1], ARGV[3], ARGV[i])
    end
  end
end
return now
