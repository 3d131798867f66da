-- Release (protocol steps A5, L1): delete the lock keys that are still the owner's, and say so. A key that others
-- wait for here is kept for the first of them, for a short while (W2).
--
-- KEYS       the lock keys
-- ARGV[1]    owner token
-- ARGV[2]    how long a key is kept for who waits, milliseconds; "0": not at all
--
-- Reply: how many keys were the owner's, as a negative number if one was kept for somebody. All of them: it was
-- ours. Fewer: it no longer was.
--
-- Who waits hears of it: on a channel of its own if the key was kept for it, else on redlock:released:<key>. The
-- messages are only hints, so a server that forbids them (an ACL) still releases.

local released, kept = 0, false
for i = 1, #KEYS do
  local key = KEYS[i]
  if redis.pcall('GET', key) == ARGV[1] then
    local next
    while ARGV[2] ~= '0' do
      next = redis.call('ZPOPMIN', 'redlock:wait:' .. key)[1]
      if not next then break end
      local listeners = redis.pcall('PUBLISH', 'redlock:released:' .. next, key)
      if type(listeners) ~= 'number' then next = nil break end
      if listeners > 0 then break end -- else that client has gone
    end
    if next then
      redis.call('SET', key, next, 'PX', ARGV[2])
      kept = true
    else
      redis.call('DEL', key)
      redis.pcall('PUBLISH', 'redlock:released:' .. key, ARGV[1])
    end
    released = released + 1
  end
end
if kept then return -released end
return released
