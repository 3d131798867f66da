-- Adopt (protocol step D4): give every lock key from a ticket to the client that takes it over, or none. A grant counts
-- like one of acquire.lua: the node must be one that may grant, and the ballot above the highest. common.lua stands in front
-- of this.
--
-- KEYS[1]    redlock:node, the marker
-- KEYS[2]    redlock:fence
-- KEYS[3..]  the lock keys
-- ARGV[1]    the marker that the client expects
-- ARGV[2]    the ticket's owner token
-- ARGV[3]    the new owner token, never used before
-- ARGV[4]    time to live, milliseconds
-- ARGV[5]    ballot; "0": no fencing tokens
-- ARGV[6..]  the fence slot of each lock key, in the order of KEYS
--
-- Replies
--   integer                                          granted; this server's TIME in microseconds
--   {"held", time, pttl, owner, highest ballot}      some key has another owner; nothing was written
--   {"missing", time}                                some key is gone; nothing was written
--   {"ballot", time, highest ballot}                 all keys are the ticket's, but the ballot is not above the highest
--   {"unready", time}                                the marker differs (Q1): ask ready.lua

local from, to, ttl, ballot = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'unready', now} end

local highest = 0
if ballot ~= '0' then
  for i = 6, #ARGV do
    local stored = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[i]) or 0)
    if stored > highest then highest = stored end
  end
end

local missing = false
for i = 3, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if not owner then
    missing = true
  elseif owner ~= from then
    if type(owner) ~= 'string' then owner = nameOf(KEYS[i]) end
    return {'held', now, redis.call('PTTL', KEYS[i]), shown(owner), highest}
  end
end
if missing then return {'missing', now} end
if ballot ~= '0' and tonumber(ballot) <= highest then return {'ballot', now, highest} end

for i = 3, #KEYS do
  -- Never make a key's time shorter, as in extend.lua.
  redis.call('SET', KEYS[i], to, 'PX', math.max(redis.call('PTTL', KEYS[i]), ttl))
end
if ballot ~= '0' then
  for i = 6, #ARGV do redis.call('ZADD', KEYS[2], ballot, ARGV[i]) end
end
return now
