-- Release (protocol steps A5, L1): delete the lock keys that are still the owner's, and say so.
--
-- KEYS       the lock keys
-- ARGV[1]    owner token
--
-- Reply: how many keys were deleted. All of them: it was ours. Fewer: it no longer was.
--
-- Whoever waits for the lock hears the token on the channel redlock:released:<key> (W2). The message is
-- only a hint, so a server that forbids it (an ACL) still releases.

local deleted = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    redis.call('DEL', KEYS[i])
    redis.pcall('PUBLISH', 'redlock:released:' .. KEYS[i], ARGV[1])
    deleted = deleted + 1
  end
end
return deleted
