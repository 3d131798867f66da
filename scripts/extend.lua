-- Extend (protocol step R1): give every lock key a new time to live, if all keys are already the owner's.
--
-- KEYS       the lock keys
-- ARGV[1]    owner token
-- ARGV[2]    time to live, milliseconds
--
-- Replies
--   integer                           extended; this server's TIME in microseconds
--   {"missing", time}                 at least one key is gone, none is another's; nothing was written
--   {"held", time, pttl, owner, 0}    some key is another's; nothing was written
--
-- This script never writes a missing key: a client that finds its key gone may no longer be the owner (R2).

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local missing = false
for i = 1, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if not owner then
    missing = true
  elseif owner ~= ARGV[1] then
    if type(owner) ~= 'string' then owner = '' end
    return {'held', now, redis.call('PTTL', KEYS[i]), owner, 0}
  end
end
if missing then return {'missing', now} end

-- Never make a key's time shorter (R1). If this server's clock was set back, the time that is left looks long, and is
-- right again once the clock is. A shorter time, counted by the wrong clock, would be over at that moment, while the
-- lease still relies on the key.
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
return now
