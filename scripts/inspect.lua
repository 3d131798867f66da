-- Inspect: who has a lock key here and for how much longer, and the highest ballot granted in its fence slot. Writes
-- nothing.
--
-- KEYS[1]    redlock:fence
-- KEYS[2]    the lock key
-- ARGV[1]    its fence slot
--
-- Reply: {"key", time, pttl, owner, highest ballot, entries}. pttl is -2 if there is no such key, and -1 if it never
-- expires. The owner of a key that is no string is "". If several share the key, it is "readers" or "permits", and entries
-- has their entries, each followed by when it ends, microseconds (entries.lua, which stands in front of this). Another
-- program's string may have the same text. Then entries is nil, as for every string; otherwise it is a list.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local owner = redis.pcall('GET', KEYS[2])
local entries = false
if not owner then -- without the right to ZRANGE, too, a free key is free
  owner = ''
elseif type(owner) ~= 'string' then
  local all = redis.pcall('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
  local kind = kindOf(all[1])
  if not kind and isUnread(owner) then return owner end
  if isUnread(all) then return all end
  owner, entries = name(kind), {}
  for i = 1, kind and #all or 0, 2 do
    if tonumber(all[i + 1]) > now then
      entries[#entries + 1], entries[#entries + 2] = all[i], tonumber(all[i + 1])
    end
  end
end
local highest = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
return {'key', now, redis.call('PTTL', KEYS[2]), owner, highest, entries}
