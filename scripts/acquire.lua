-- Acquire (protocol steps A2, F2): grant every lock key to one owner, or none.
--
-- KEYS       the lock keys. Beside them it reads redlock:node, the marker of a node that may grant (ready.lua), and
--            redlock:fence, a hash: fence slot -> highest ballot granted there. These are the same for every lock, and
--            an argument costs a server as much as half a command.
-- ARGV[1]    the marker as the client knows it: the server's data set, and the digest of the client's configuration
-- ARGV[2]    if refused, enter the client among those who wait for the key in the way (W2): since when it has waited, in
--            microseconds of a server's TIME, or "1": since now. Negative: it hears no messages, and polls. "0": do not
-- ARGV[3]    what a key holds that was kept for this client by release.lua: "next:" and the client's id; or ""
-- ARGV[4]    owner token, never used before
-- ARGV[5]    time to live, milliseconds
-- ARGV[6]    ballot, or "0" to keep no fence
-- ARGV[7..]  the fence slot of each lock key, in the order of KEYS
--
-- Replies
--   integer                                          granted; this server's TIME in microseconds
--   {"held", time, pttl, owner, highest ballot}      some key is taken; no lock was written
--   {"ballot", time, highest ballot}                 all are free, but a ballot as high was granted before
--   {"unready", time}                                the marker is not this one (Q1): ask ready.lua
--
-- Ballots stay below 2^53, where Lua's doubles are exact.

local me, token, ttl, ballot = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if redis.call('GET', 'redlock:node') ~= ARGV[1] then return {'unready', now} end

local highest = 0
if ballot ~= '0' then
  for i = 7, #ARGV do
    local stored = tonumber(redis.call('HGET', 'redlock:fence', ARGV[i]) or 0)
    if stored > highest then highest = stored end
  end
end
local stale = ballot ~= '0' and tonumber(ballot) <= highest

-- All keys are looked at before any is written; of a single one SET tells as much.
local held, owner
if stale or #KEYS > 1 or not redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  for i = 1, #KEYS do
    owner = redis.pcall('GET', KEYS[i])
    if owner and (owner ~= me or me == '') then
      held = KEYS[i]
      break
    end
  end
  if not held and not stale then
    for i = 1, #KEYS do redis.call('SET', KEYS[i], token, 'PX', ttl) end
  end
end

if held then
  if type(owner) ~= 'string' then owner = '' end -- never a lock of anybody's: something else is there
  if ARGV[2] ~= '0' then
    local waiting, since, member = 'redlock:wait:' .. held, tonumber(ARGV[2]), me
    if since < 0 then since, member = -since, me .. ':poll' end
    if since == 1 then since = now end
    redis.pcall('ZADD', waiting, 'NX', since, member)
    redis.call('PEXPIRE', waiting, 10000)
  end
  return {'held', now, redis.call('PTTL', held), owner, highest}
end
if stale then return {'ballot', now, highest} end

if ARGV[2] ~= '0' then -- it waits no longer: what it entered before is taken out
  for i = 1, #KEYS do redis.pcall('ZREM', 'redlock:wait:' .. KEYS[i], me, me .. ':poll') end
end

if ballot ~= '0' then
  for i = 7, #ARGV do redis.call('HSET', 'redlock:fence', ARGV[i], ballot) end
end
return now
