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
  local owner = redis.pcall('GET', KEYS[i])
  if owner == ARGV[1] then
    local left = redis.call('PTTL', KEYS[i])
    if left == -1 and ARGV[3] == '0' then -- an operator made it stay
      redis.call('SET', KEYS[i], ARGV[2])
    else
      -- Never make a key's time shorter, as in extend.lua.
      redis.call('SET', KEYS[i], ARGV[2], 'PX', math.max(1, left, tonumber(ARGV[3])))
    end
    swapped = swapped + 1
  elseif type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    return owner -- it could not be read, most likely for a missing right: unknown, and not another's
  end
end
return swapped
