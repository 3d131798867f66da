-- Inspect: who has a lock key here and for how much longer, and the highest ballot granted in its fence slot. Writes
-- nothing.
--
-- KEYS[1]    the lock key
-- ARGV[1]    its fence slot
--
-- Reply: {"key", time, pttl, owner, highest ballot}. pttl is -2 if there is no such key, and -1 if it never expires.
-- The owner of a key that is no string is "".

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local owner = redis.pcall('GET', KEYS[1])
if type(owner) ~= 'string' then owner = '' end
local highest = tonumber(redis.call('ZSCORE', 'redlock:fence', ARGV[1]) or 0)
return {'key', now, redis.call('PTTL', KEYS[1]), owner, highest}
