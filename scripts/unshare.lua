-- Unshare (protocol steps A5, L1, S5): the release of a reader or of permits. It deletes one entry of the lock key, and no
-- other. What the entry had is reserved for the first waiter (W2). entries.lua stands in front of this.
--
-- KEYS       the lock key
-- ARGV[1]    the entry
-- ARGV[2]    how long a reservation lasts, milliseconds; "0": make none
--
-- Reply: as of release.lua.

local key, entry, keep = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local what, value = look(key, now)
if what == 'string' and value == ownerOf(entry) then -- a writer that became a reader, but not here (S4)
  redis.call('DEL', key)
elseif what ~= kindOf(entry) or not drop(key, entry) then
  -- The lease was acquired without this node. But its waiters may be queued here, and what it had is free now.
  local free = what == 'free' or what == 'permit' and kindOf(entry) == what and stateFor(key, entry, now) == 'free'
  if free and keep > 0 then reserve(key, entry, keep, now) end
  return 0
end
if keep > 0 and reserve(key, entry, keep, now) then return -1 end
return 1
