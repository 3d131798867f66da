-- Ready (protocol steps Q1, Q2): may this node grant? If it may have forgotten what it granted, begin or go on
-- with a quarantine, and end it when its time is over.
--
-- It reads and writes redlock:node, the marker, and redlock:quarantine, which exists while one lasts.
--
-- ARGV[1]    run id of this server process, as INFO told it on this very connection
-- ARGV[2]    MaxTTL, milliseconds
-- ARGV[3]    how long a quarantine lasts beyond MaxTTL, milliseconds
-- ARGV[4]    "enroll": an operator vouches that no lease is out; "durable": a restart forgets nothing; else ""
-- ARGV[5]    "1": the client keeps fences
--
-- The marker is "<run id> <MaxTTL>" on a node that may grant, and "<run id> <MaxTTL> <time>" on one in
-- quarantine until that time of this server, in microseconds.
--
-- Replies
--   {"ready", time, MaxTTL}       it may grant leases that are no longer than this, in milliseconds
--   {"quarantine", time, left}    not yet; milliseconds left, counted by this server
-- where time is this server's TIME in microseconds.

local run, maxTTL, margin, word = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function admit(max)
  redis.call('SET', 'redlock:node', run .. ' ' .. string.format('%.0f', max))
  redis.call('DEL', 'redlock:quarantine')
  if ARGV[5] == '1' then
    -- Small hashes are lists, searched from end to end, as long as no field is longer than 64 bytes.
    redis.call('HSET', 'redlock:fence', string.rep('-', 80), '')
  end
  return {'ready', now, max}
end

if word == 'enroll' then return admit(maxTTL) end

local markedRun, markedMax, ends
local marker = redis.pcall('GET', 'redlock:node')
if type(marker) == 'string' then
  markedRun, markedMax, ends = string.match(marker, '^(%S+) (%d+) ?(%d*)$')
  markedMax = tonumber(markedMax)
end

if markedRun == run and ends == '' then return admit(markedMax) end
if markedRun and word == 'durable' and ends == '' then return admit(markedMax) end

local function confine(max, till)
  redis.call('SET', 'redlock:node', run .. ' ' .. string.format('%.0f', max) .. ' ' .. string.format('%.0f', till))
  redis.call('SET', 'redlock:quarantine', run, 'PX', math.max(1, math.ceil((till - now) / 1000)))
end

if markedRun == run then
  local till = tonumber(ends)
  if maxTTL > markedMax then -- leases may be out that are longer than whoever began it knew
    till = till + (maxTTL - markedMax) * 1000
    confine(maxTTL, till)
    markedMax = maxTTL
  end
  -- Both must be over: the key may have been evicted or deleted, and the time in the marker may not.
  local left = math.max((till - now) / 1000, redis.call('PTTL', 'redlock:quarantine'))
  if left <= 0 then return admit(markedMax) end
  return {'quarantine', now, math.ceil(left)}
end

-- Another process, or nothing is known of any. Leases may be out that are as long as either of us knows.
local length = math.max(maxTTL, markedMax or 0) + margin
confine(maxTTL, now + length * 1000)
return {'quarantine', now, length}
