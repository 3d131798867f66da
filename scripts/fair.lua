-- Acquire a fair lock (protocol step O1): grant every lock key to one owner, or none, and only if no waiter with a
-- smaller ticket is in the queue of one of them.
--
-- KEYS[1]    redlock:node, the marker
-- KEYS[2]    redlock:fence
-- KEYS[3..]  for each lock key five: the key itself, and of its queue
--              redlock:fair:ticket:<key>  sorted set: waiter -> ticket
--              redlock:fair:until:<key>   sorted set: waiter -> until when its place lasts, by this server's TIME
--              redlock:wait:<key>         sorted set: whom a release tells (release.lua)
--              redlock:rw:<key>           a waiting writer's intent (S2, entries.lua)
-- ARGV[1]    the marker that the client expects
-- ARGV[2]    the waiter's ticket; "0": it has none, and does not enter the queues
-- ARGV[3]    the waiter: "fair:<client id>:<number>"
-- ARGV[4]    owner token, never used before
-- ARGV[5]    time to live, milliseconds
-- ARGV[6]    how long the waiter's place lasts unless it asks again, milliseconds
-- ARGV[7]    ballot; "0": no fencing tokens; "-1", without fence slots: only look (acquire.lua)
-- ARGV[8..]  the fence slot of each lock key
--
-- Replies
--   integer                                                               granted; this server's TIME in microseconds
--   {"taken", time, pttl, owner, highest ballot, largest ticket, ahead}   some key is taken
--   {"behind", time, left, "", highest ballot, largest ticket, ahead}     all keys are free, and waiters are ahead
--   {"ballot", time, highest ballot}                                      nothing else is in the way
--   {"unready", time}                                                     the marker differs (Q1)
--   an error                                                              such as a key of the queue that is of another type
-- The largest ticket is of all waiters, and is for one that has none; else 0. ahead is how many waiters are ahead, in
-- the queue where that is most. left is in how many milliseconds their places have ended, unless they ask again; -1:
-- not known. Tickets stay below 2^53, so Lua's doubles are exact.

local ticket, me, token, ttl, life, ballot = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local ready = redis.call('GET', KEYS[1]) == ARGV[1]
local ahead, largest, left = 0, 0, 0
local ended, entered = {}, {} -- by lock key: places were over; the waiter is new here

for i = 3, #KEYS, 5 do
  local tickets, lives, waiting = KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  for _, queue in ipairs({tickets, lives}) do
    local size = redis.pcall('ZCARD', queue)
    if type(size) == 'table' and string.find(size.err, 'WRONGTYPE', 1, true) then
      return {err = 'WRONGTYPE ' .. queue .. ' is no sorted set, so the node grants nobody this fair lock: a program has ' ..
        'written to it; delete that key on this node (waiters write their places again)'}
    end
  end
  -- All places that are over go at once, however many they are.
  while true do
    local over = redis.call('ZRANGEBYSCORE', lives, '-inf', whole(now), 'LIMIT', 0, 1000)
    if #over == 0 then break end
    redis.call('ZREM', lives, unpack(over))
    redis.call('ZREM', tickets, unpack(over))
    redis.pcall('ZREM', waiting, unpack(over))
    ended[i] = true
  end
  -- No place lasts this long: the clock was set back. A living waiter asks again soon.
  local long = redis.call('ZRANGEBYSCORE', lives, whole(now + 60000000), '+inf', 'LIMIT', 0, 1000)
  for _, waiter in ipairs(long) do redis.call('ZADD', lives, whole(now + life * 1000), waiter) end
  -- A ticket without a life: somebody deleted that key, as the error above says. The dead would be ahead for ever.
  if redis.call('ZCARD', tickets) > redis.call('ZCARD', lives) then
    for _, waiter in ipairs(redis.call('ZRANGE', tickets, 0, -1)) do
      redis.call('ZADD', lives, 'NX', whole(now + life * 1000), waiter)
    end
    redis.call('PEXPIRE', lives, 60000)
  end

  -- A node in quarantine takes the place too, so that it knows its queue again before it may grant.
  local rank
  if ticket ~= '0' then
    redis.call('ZADD', tickets, ticket, me)
    redis.call('ZADD', lives, whole(now + life * 1000), me)
    entered[i] = redis.pcall('ZADD', waiting, ticket, me) == 1
    redis.call('PEXPIRE', tickets, 60000)
    redis.call('PEXPIRE', lives, 60000)
    redis.call('PEXPIRE', waiting, 10000)
    rank = redis.call('ZRANK', tickets, me)
  else
    rank = redis.call('ZCARD', tickets)
    local last = tonumber(redis.call('ZREVRANGE', tickets, 0, 0, 'WITHSCORES')[2] or 0)
    if last > largest then largest = last end
  end
  if rank > ahead then ahead = rank end
  if rank > 16 then
    left = -1
  elseif rank > 0 and left >= 0 then
    for _, waiter in ipairs(redis.call('ZRANGE', tickets, 0, rank - 1)) do
      local lasts = math.ceil((tonumber(redis.call('ZSCORE', lives, waiter) or 0) - now) / 1000)
      if lasts > left then left = lasts end
    end
  end
end
if not ready then return {'unready', now} end

local highest = 0
if ballot ~= '0' then
  for i = 8, #ARGV do
    local stored = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[i]) or 0)
    if stored > highest then highest = stored end
  end
end

for i = 3, #KEYS, 5 do
  local owner = redis.pcall('GET', KEYS[i])
  if owner then
    -- A key that is no string may be a lock that several share (entries.lua). Otherwise something else is there.
    if type(owner) ~= 'string' then
      local last = redis.pcall('ZRANGE', KEYS[i], -1, -1)[1]
      local kind = kindOf(last)
      owner = name(kind)
      if kind == 'reader' and ticket ~= '0' then
        -- The intent of the first waiter keeps newcomers out (S2), for as long as its place lasts. That of a plain writer
        -- becomes nobody's.
        local who, asked = string.match(intentOf(KEYS[i + 4]), '^(%S+) (%d+)$')
        local first, lasts = tonumber(ticket) <= tonumber(asked or 1 / 0), tonumber(life)
        if who and (string.sub(who, 1, 5) ~= 'fair:' or who == nobody) then
          lasts = math.max(lasts, redis.call('PTTL', KEYS[i + 4]))
          redis.call('SET', KEYS[i + 4], nobody .. ' ' .. (first and ticket or asked), 'PX', lasts)
        elseif first then
          redis.call('SET', KEYS[i + 4], me .. ' ' .. ticket, 'PX', lasts)
        end
      end
      if isMute(last or '') then owner = string.upper(owner) end
    end
    -- The waiter is new in the queues of all keys at once, and is not told of those behind this one.
    for j = i, #KEYS, 5 do
      if entered[j] then sayWanted(KEYS[j], holdersOf(KEYS[j])) end
    end
    return {'taken', now, redis.call('PTTL', KEYS[i]), shown(owner), highest, whole(largest), ahead}
  end
  -- Waiters that died were told of the release. The first one that is left may not know that the key is free.
  local first = ended[i] and redis.call('ZRANGE', KEYS[i + 1], 0, 0)[1]
  if first and first ~= me then tell(first, KEYS[i]) end
end
if ahead > 0 then return {'behind', now, left, '', highest, whole(largest), ahead} end
if ballot ~= '0' and tonumber(ballot) <= highest then return {'ballot', now, highest} end

-- The place stays. The attempt may be lost on the other nodes: then it releases these keys, and asks again. The winner
-- leaves the queues (leave.lua).
for i = 3, #KEYS, 5 do redis.call('SET', KEYS[i], token, 'PX', ttl) end
if ballot ~= '0' then
  for i = 8, #ARGV do redis.call('ZADD', KEYS[2], ballot, ARGV[i]) end
end
return now
