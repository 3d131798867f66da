-- Share (protocol steps A2, F2, S1 to S3): let one reader in, or grant permits of a semaphore. entries.lua, whose
-- functions stand in front of this, describes the keys.
--
-- KEYS[1]    the lock key
-- KEYS[2]    redlock:wait:<key>, the queue of the key
-- KEYS[3]    redlock:shared:<key>
-- KEYS[4]    redlock:rw:<key>
-- KEYS[5]    redlock:node
-- KEYS[6]    redlock:fence
-- ARGV       as of acquire.lua, but ARGV[4] is the entry, and there is one fence slot: ARGV[7]; none with a ballot of "0" or "-1". And ARGV[2] may be "=" and a
--            number: do not enter the client, which waits since then in the queue of another node (S2)
--
-- Replies: as of acquire.lua. Of a semaphore,
--   {"held", time, left, owner, highest ballot, free, largest P}
-- left is when the first permit could be free, milliseconds. free is the slots that this client could have here, separated
-- by commas; "" if they are not enough. Then owner is whom a slot is reserved for, if there is one. A reader that a writer's intent holds back is refused as by a reservation for
-- nobody: "next:" and 32 zeros.

local key, waiting, shared, intent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, entry, ttl, ballot = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if redis.call('GET', KEYS[5]) ~= ARGV[1] then return {'unready', now} end

local highest = 0
if ARGV[7] then highest = tonumber(redis.call('ZSCORE', KEYS[6], ARGV[7]) or 0) end
local stale = ballot ~= '0' and tonumber(ballot) <= highest

local elsewhere = string.match(ARGV[2], '^=(%d+)$')
local since, member = tonumber(elsewhere or ARGV[2]), me
local queues = since ~= 0 and not elsewhere
if since < 0 then since, member = -since, me .. ':poll' end
if since <= 1 then since = now end

local function refuse(left, owner, free, largest)
  if queues then
    local new = redis.pcall('ZADD', waiting, 'NX', since, member) == 1
    -- With free slots, the client asks for one of these at once.
    if new and (free or '') == '' then sayWanted(key, holdersOf(key)) end
    redis.pcall('ZADD', shared, 'NX', since, member)
    redis.call('PEXPIRE', waiting, 10000)
    redis.call('PEXPIRE', shared, 10000)
  end
  return {'held', now, left, shown(owner), highest, free, largest}
end

local kind = kindOf(entry)
local what, value = look(key, now)
local first = what ~= kind
if what == 'string' and (value ~= me or me == '') then return refuse(redis.call('PTTL', key), value) end
if what ~= 'free' and what ~= 'string' and what ~= kind then return refuse(redis.call('PTTL', key), name(what)) end

if kind == 'reader' and (what == 'reader' or what == 'free') then
  -- A reader that waited before the writer did may still come in. A key that is free is not reserved for the writer if
  -- that waits in order of arrival (O3). Its intent keeps the key for it.
  local who, from = string.match(intentOf(intent), '^(%S+) (%d+)$')
  local asked = tonumber((what == 'reader' or string.sub(who or '', 1, 5) == 'fair:') and from or 0)
  if asked > 0 and since >= asked then
    -- Nobody has the lock: the writer comes soon, or never.
    if what == 'free' and redis.call('PTTL', intent) > 250 then redis.call('PEXPIRE', intent, 250) end
    return refuse(redis.call('PTTL', intent), 'next:' .. string.rep('0', 32))
  end
end

local left = 1 / 0 -- how many more permits there are
if kind == 'permit' then
  local permits, wants, busy = permitsOf(entry), 0, nil
  local owners, count, ends, largest, next = {}, 0, nil, 0, nil
  if what == 'permit' then owners, count, ends, largest, next = taken(key, me) end
  for slot in slotsOf(entry) do
    busy, wants = busy or owners[slot], wants + 1
  end
  left = permits - count - wants
  if busy or left < 0 then
    local free = {}
    for slot = 0, permits - 1 do
      if left >= 0 and not owners[tostring(slot)] then free[#free + 1] = tostring(slot) end
    end
    if left < 0 and next then busy = next end
    if not busy then -- there are fewer permits than before: who has one is in the way
      for _, owner in pairs(owners) do
        if not busy or owner < busy then busy = owner end
      end
    end
    return refuse(math.ceil((ends - now) / 1000), busy, table.concat(free, ','), largest)
  end
end

if stale then return {'ballot', now, highest} end

-- What was reserved for this client is used now, or not needed. It no longer waits.
local unused = false
if kind == 'permit' and what == 'permit' and me ~= '' then
  for _, other in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    if ownerOf(other) == me then
      redis.call('ZREM', key, other)
      unused = unused or string.match(other, ' %S+ ') ~= string.match(entry, ' %S+ ')
    end
  end
end
if me ~= '' then
  redis.pcall('ZREM', waiting, me, me .. ':poll')
  redis.pcall('ZREM', shared, me, me .. ':poll')
end
write(key, entry, now, ttl)
if first then
  begin(key, left)
elseif unused then
  local behind = redis.pcall('ZRANGE', shared, 0, 0)[1]
  if behind then tell(behind, key) end
end
if ballot ~= '0' then redis.call('ZADD', KEYS[6], ballot, ARGV[7]) end
return now
