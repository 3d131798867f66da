-- Release (protocol steps A5, L1): delete the lock keys that are still the owner's, and say so. A key that others
-- wait for here is kept for the first of them, for a short while (W2).
--
-- KEYS       the lock keys
-- ARGV[1]    owner token
-- ARGV[2]    how long a key is kept for who waits, milliseconds; "0": not at all
-- ARGV[3]    a minimum hold: the key is not deleted, but keeps the owner for no more than so many milliseconds.
--            Absent or "0": there is none
--
-- Reply: how many keys were the owner's, as a negative number if one was kept for somebody. All of them: it was
-- ours. Fewer: it no longer was.
--
-- The client for which a key was kept hears of it on a channel of its own. The messages are only hints, so a server that
-- forbids them (an ACL) still releases. Of a key that is left for a minimum hold, the first who waits hears too: it asks,
-- and learns when the key expires.
--
-- A waiter that is entered as "<what the key will hold>:poll" hears no messages: the key is kept for it twice as long,
-- and the waiter behind it is told, as "<what the key holds> <key>", to look whether it was used. A client that may
-- not publish has owner tokens in capitals, and whoever meets one polls.

local released, kept, rest = 0, false, ARGV[3] or '0'
for i = 1, #KEYS do
  local key = KEYS[i]
  local owner = redis.pcall('GET', key)
  if rest ~= '0' and owner == ARGV[1] then
    -- Only ever made shorter: what comes late must not hold the lock for longer.
    local left = redis.call('PTTL', key)
    if left < 0 or left > tonumber(rest) then redis.call('PEXPIRE', key, rest) end
    local first = redis.pcall('ZRANGE', 'redlock:wait:' .. key, 0, 0)[1]
    if first then redis.pcall('PUBLISH', 'redlock:released:' .. first, key) end
    released = released + 1
  elseif owner == ARGV[1] then
    local waiting, keep, next = 'redlock:wait:' .. key, tonumber(ARGV[2])
    while keep ~= 0 do
      local first = redis.pcall('ZPOPMIN', waiting)
      next = first[1]
      if not next then break end
      if string.sub(next, -5) == ':poll' then
        next, keep = string.sub(next, 1, -6), 2 * keep
        redis.pcall('PUBLISH', 'redlock:released:' .. next, key) -- by now it may hear
        local behind = redis.pcall('ZRANGE', waiting, 0, 0)[1]
        if behind then redis.pcall('PUBLISH', 'redlock:released:' .. behind, next .. ' ' .. key) end
        break
      end
      local listeners = redis.pcall('PUBLISH', 'redlock:released:' .. next, key)
      if type(listeners) ~= 'number' then -- nobody can be told
        if string.find(ARGV[1], '%u') then keep = 2 * keep break end -- as who met this owner knows, and polls
        redis.pcall('ZADD', waiting, first[2], next)
        next = nil
        break
      end
      if listeners > 0 then break end -- else that client has gone
    end
    if next then
      redis.call('SET', key, next, 'PX', keep)
      kept = true
    else
      redis.call('DEL', key)
    end
    released = released + 1
  end
end
if kept then return -released end
return released
