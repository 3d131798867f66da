-- Swap (protocol steps D3, D5): give lock keys from one owner token to another.
--
-- KEYS       the lock keys
-- ARGV[1]    the owner token that has them
-- ARGV[2]    the owner token that gets them
-- ARGV[3]    time to live, milliseconds; "0": leave it as it is
--
-- Reply: how many keys were the first owner's, and now are the second one's.

local swapped = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    -- Never make a key's time shorter, as in extend.lua.
    local left = math.max(1, redis.call('PTTL', KEYS[i]), tonumber(ARGV[3]))
    redis.call('SET', KEYS[i], ARGV[2], 'PX', left)
    swapped = swapped + 1
  end
end
return swapped
