-- Extend (protocol step R1): give every lock key a new time to live, if all are already the owner's.
--
-- KEYS       the lock keys
-- ARGV[1]    owner token
-- ARGV[2]    time to live, milliseconds
--
-- Replies
--   integer              extended; this server's TIME in microseconds
--   {"missing", time}    no key is another's, but at least one is gone; nothing was written
--   {"held", time, pttl, owner, 0}    some key is another's; nothing was written
--
-- A missing key is not written here: whoever finds it gone may no longer be the owner (R2).

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

-- Never made shorter: where this server's clock has been set back, the time that is left looks long, and is right again
-- once the clock is. A shorter one, counted by the wrong clock, would then be over at once, though others count on it.
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
return now
