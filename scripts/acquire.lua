-- Acquire (protocol steps A2, F2): grant every lock key to one owner, or none.
--
-- KEYS       the lock keys. The script also reads redlock:node, the marker of a node that may grant (ready.lua), and
--            redlock:fence, a sorted set: fence slot -> highest ballot granted there. These two are the same for every lock.
--            They are not among KEYS, because each argument costs the server as much as half a command.
-- ARGV[1]    the marker that the client expects: the server's data set, and the digest of the client's configuration
-- ARGV[2]    if the lock is refused, how to enter the client in the queue of the key that is in the way (W2):
--              "0"     do not
--              "1"     as a waiter that has just arrived
--              number  as a waiter that arrived then, in microseconds of a server's TIME
--              A negative number: the same, but the client gets no messages and polls.
--              "raised"  do not; and the light form of this acquire has stored the ballot already
-- ARGV[3]    the value of a key that is reserved for this client (release.lua): "next:" and the client's id; or ""
-- ARGV[4]    owner token, never used before
-- ARGV[5]    time to live, milliseconds
-- ARGV[6]    ballot; "0": no fencing tokens; "-1", without fence slots: only look. The reply is that of an acquire whose
--            ballot is not above the highest, which writes nothing
-- ARGV[7..]  the fence slot of each lock key, in the order of KEYS
--
-- Replies
--   integer                                          granted; this server's TIME in microseconds
--   {"held", time, pttl, owner, highest ballot}      some key is taken; no lock was written. owner is at most
--                                                    the first 2048 bytes of the key (shown of common.lua), and
--                                                    "readers" or "permits" if several share it (share.lua)
--   {"ballot", time, highest ballot}                 all keys are free or ours, but the ballot is not above the highest
--   {"unready", time}                                the marker differs (Q1): ask ready.lua
--
-- Ballots stay below 2^53, so Lua's doubles are exact. common.lua stands in front of this, and entries.lua does not, because
-- most acquires would pay for it and have no use for it.

local me, token, ttl, ballot = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if redis.call('GET', 'redlock:node') ~= ARGV[1] then return {'unready', now} end

local highest = 0
if ballot ~= '0' then
  for i = 7, #ARGV do
    local stored = tonumber(redis.call('ZSCORE', 'redlock:fence', ARGV[i]) or 0)
    if stored > highest then highest = stored end
  end
end
-- The light form is refused if the key is taken, and stores its ballot all the same. No other acquire has that one.
local raised = ARGV[2] == 'raised' and tonumber(ballot) == highest
local stale = ballot ~= '0' and tonumber(ballot) <= highest and not raised
local queues = ARGV[2] ~= '0' and ARGV[2] ~= 'raised'

-- Look at all keys before writing any. For a single key, SET NX does both.
local held, owner
if stale or #KEYS > 1 or not redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  for i = 1, #KEYS do
    owner = redis.pcall('GET', KEYS[i])
    -- The key may be ours: the light form of this acquire wrote it (protocol step A2). It is not deleted here, because
    -- others may have been refused because of it. Only a release tells waiters that a key is free (A5).
    if owner and owner ~= token and (owner ~= me or me == '') then
      held = KEYS[i]
      break
    end
  end
  if not held and not stale then
    for i = 1, #KEYS do redis.call('SET', KEYS[i], token, 'PX', ttl) end
  end
end

if held then
  -- A key that is no string may be a lock that several share (entries.lua). Otherwise something else is there.
  local holders = {owner}
  if type(owner) ~= 'string' then
    holders = redis.pcall('ZRANGE', held, 0, 127)
    local last = redis.pcall('ZRANGE', held, -1, -1)[1] or ''
    owner = name(kindOf(last))
    if owner == 'readers' and me ~= '' then -- a waiting writer keeps new readers out, for a short time (S2)
      local intent = 'redlock:rw:' .. held
      local before = redis.pcall('GET', intent) -- what is no string is none, as in intentOf of entries.lua
      local kind, who, asked = string.match(type(before) == 'string' and before or '', '^(%l%l%l%l:)(%S+) (%d+)$')
      who = who and kind .. who or me
      if who ~= me then who = kind .. string.rep('0', 32) end -- of several writers: nobody's (entries.lua)
      asked = asked or string.format('%.0f', now)
      redis.call('SET', intent, who .. ' ' .. asked, 'PX', math.max(3000, redis.call('PTTL', intent)))
    end
    if isMute(last) then owner = string.upper(owner) end
  end
  if queues then
    local waiting, since, member = 'redlock:wait:' .. held, tonumber(ARGV[2]), me
    if since < 0 then since, member = -since, me .. ':poll' end
    if since == 1 then since = now end
    if redis.pcall('ZADD', waiting, 'NX', since, member) == 1 then sayWanted(held, holders) end
    redis.call('PEXPIRE', waiting, 10000)
  end
  return {'held', now, redis.call('PTTL', held), shown(owner), highest}
end
if stale then return {'ballot', now, highest} end

-- The client no longer waits: it leaves the queues.
if queues then
  for i = 1, #KEYS do redis.pcall('ZREM', 'redlock:wait:' .. KEYS[i], me, me .. ':poll') end
end

if ballot ~= '0' then
  for i = 7, #ARGV do redis.call('ZADD', 'redlock:fence', ballot, ARGV[i]) end
end
return now
