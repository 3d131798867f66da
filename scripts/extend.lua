-- Extend (protocol steps R1, R2): renew leases. Each lease is renewed on its own: one that cannot be does not touch the
-- others.
--
-- KEYS[1]    redlock:node, the marker
-- KEYS[2]    redlock:fence
-- KEYS[3..]  the lock keys of all leases, lease by lease
-- ARGV[1]    the marker that the client expects; "": no lease may take a key here
-- Then for each lease:
--   how many keys it has
--   its owner token; of a reader or a holder of permits, its entry (entries.lua stands in front of this)
--   time to live, milliseconds. If the write that gave the keys here may have given more: ":", and how much
--   its ballot, if it may take keys that are missing here; "0": it may, without fencing tokens; "-": it may not
--   the fence slot of each key, if there is a ballot
--
-- Reply: {time, reply, reply, ...}: this server's TIME in microseconds, and for each lease
--   1                 extended: all its keys were the owner's, and the marker is right: this node may grant
--   3                 extended, but the marker is not right
--   4                 extended, and the marker is right, but a key has more time left than any write gave it. So this
--                     server's clock was set back since it wrote that key, by more than has passed since
--   2                 taken: some keys were missing and are now the owner's, and the others were
--   0                 some keys are missing; nothing was written
--   {pttl, owner}     some key is another's; nothing was written
--   an error          a command failed, as for a missing right; the keys may be extended or not
--
-- A key is taken only if the marker is right. The client sends a ballot only where the lease never had its keys, so a lock
-- that was deleted is not taken again. A key that is reserved for a waiter (W2) counts as missing there: nobody has it.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fit

local function mayGrant()
  if fit == nil then fit = ARGV[1] ~= '' and redis.pcall('GET', KEYS[1]) == ARGV[1] end
  return fit
end

local function isReserved(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and #value == 37 and string.find(value, '^next:%x+$')
end

-- yields is the entries that only reserve slots of this one for waiters, if nobody else has a slot of it.
local function yields(key, entry)
  local reserved, wants = {}, {}
  if kindOf(entry) ~= 'permit' or look(key, now) ~= 'permit' then return reserved end
  for slot in slotsOf(entry) do wants[slot] = true end
  for _, other in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    for slot in slotsOf(other) do
      if wants[slot] then
        if not string.find(ownerOf(other), '^next:%x+$') then return {} end
        reserved[#reserved + 1] = other
      end
    end
  end
  return reserved
end

-- renew renews the lease with the keys from first to last, and the slots from that argument on.
local function renew(first, last, token, ttl, most, ballot, slots)
  local missing, shares, reserved = false, kindOf(token), {}
  if shares then
    local state, left, owner = stateFor(KEYS[first], token, now)
    if state == 'held' and ballot ~= '-' then reserved = yields(KEYS[first], token) end
    missing = state == 'free' or #reserved > 0 or state == 'held' and ballot ~= '-' and isReserved(KEYS[first])
    if state == 'held' and not missing then return {left, shown(owner)} end
  end
  for i = first, shares and 0 or last do
    local owner = redis.pcall('GET', KEYS[i])
    if not owner or owner ~= token and ballot ~= '-' and isReserved(KEYS[i]) then
      missing = true
    elseif owner ~= token then
      if type(owner) ~= 'string' then
        -- A key that could not be read, most likely for a missing right, is unknown, and not another's.
        if isUnread(owner) then return owner end
        owner = nameOf(KEYS[i])
      end
      return {redis.call('PTTL', KEYS[i]), shown(owner)}
    end
  end
  if missing and (ballot == '-' or not mayGrant()) then return 0 end

  local setBack = false
  for _, entry in ipairs(reserved) do redis.call('ZREM', KEYS[first], entry) end
  if shares then
    if write(KEYS[first], token, now, ttl) then begin(KEYS[first], 1 / 0) end
    setBack = redis.call('ZSCORE', KEYS[first], token) - now > most * 1000
  end
  for i = first, shares and 0 or last do
    -- Never make a key's time shorter (R1). If this server's clock was set back, the time that is left looks long, and
    -- is right again once the clock is. A shorter time, counted by the wrong clock, would be over at that moment,
    -- while the lease still relies on the key.
    local left = redis.call('PTTL', KEYS[i])
    if left == -2 or missing and redis.call('GET', KEYS[i]) ~= token then
      redis.call('SET', KEYS[i], token, 'PX', ttl)
    else
      if left < tonumber(ttl) then redis.call('PEXPIRE', KEYS[i], ttl) end
      setBack = setBack or left > most
    end
  end
  if not missing then return mayGrant() and (setBack and 4 or 1) or 3 end
  if ballot ~= '0' then
    for i = 0, last - first do
      -- Never lower a slot: a later holder may have raised it for another name.
      local slot = ARGV[slots + i]
      if tonumber(redis.call('ZSCORE', KEYS[2], slot) or 0) < tonumber(ballot) then
        redis.call('ZADD', KEYS[2], ballot, slot)
      end
    end
  end
  return setBack and 4 or 2
end

local replies = {now}
local key, arg = 3, 2
while arg <= #ARGV do
  local first, last = key, key + ARGV[arg] - 1
  local token, ttl, ballot = ARGV[arg + 1], string.match(ARGV[arg + 2], '^%d+'), ARGV[arg + 3]
  local most = tonumber(string.match(ARGV[arg + 2], '%d+$'))
  local slots = arg + 4
  key, arg = last + 1, slots
  if ballot ~= '-' and ballot ~= '0' then arg = arg + last - first + 1 end
  local ok, reply = pcall(renew, first, last, token, ttl, most, ballot, slots)
  if not ok and type(reply) ~= 'table' then reply = {err = tostring(reply)} end
  replies[#replies + 1] = reply
end
return replies
