-- Ready (protocol steps Q1 to Q3): may this node grant? If it may have forgotten what it granted, begin or continue a
-- quarantine, and end it when its time is over.
--
-- KEYS[1]    redlock:node, the marker
-- KEYS[2]    redlock:quarantine, which exists while a quarantine lasts
-- KEYS[3]    redlock:config, the configuration that the clients agree on
-- KEYS[4]    redlock:fence
-- ARGV[1]    identity: the name of this server's data set, from INFO on this same connection
-- ARGV[2]    what this server's clock showed, at the earliest, when the client asked, microseconds
-- ARGV[3]    digest of the client's configuration
-- ARGV[4]    the configuration
-- ARGV[5]    MaxTTL, milliseconds
-- ARGV[6]    how long a quarantine lasts beyond MaxTTL, milliseconds
-- ARGV[7]    what the client asks for:
--              "look"     nothing: it does not hear enough nodes to begin or end a quarantine
--              ""         the usual
--              "durable"  the same, and a restart forgets nothing
--              "enroll"   an operator says that no lease is out
--              "new"      the same, but only on a server that looks as if it was never used
--              "new?"     nothing: does it look like that?
--              "change"   the same, also if the configuration differs
-- ARGV[8]    the time by the other nodes' clocks, microseconds; "0": there are none
-- ARGV[9]    by how much that time may be wrong, because of how the client read those clocks, microseconds
-- ARGV[10]   how far the two clocks may move against each other, microseconds
-- ARGV[11]   how long the question may be on its way, microseconds
-- ARGV[12]   "1": the client uses fencing tokens
-- ARGV[13]   with "durable": the run ids of the client's other nodes, as far as it knows them, with a space before each
--
-- The marker
--   "<identity> <digest>"                          on a node that may grant
--   "<identity> <digest> <end>/<end>/<longest>"    on a node in quarantine: its end by this server's clock and by the
--                                                  other nodes' clocks, microseconds; the longest lease that may be
--                                                  out, milliseconds
--
-- Replies; time is this server's TIME in microseconds
--   {"ready", time, how}          it may grant; how: "already", "ended" (the quarantine is over), "restarted" or
--                                 "enrolled"
--   {"quarantine", time, left}    not before so many milliseconds
--   {"unjudged", time}            it may have forgotten, and this client may only look
--   {"late", time}                it may have forgotten, and the question was on its way for too long: nothing is changed
--   {"differs", time, text}       the node's configuration, which is not the client's
--   {"unready", time}             this is another server process than the identity says
--   {"used", time}                "new" or "new?" was asked for, and the server was used before
--   {"new", time}                 "new?" was asked for, and it looks new
--   an error                      a key may not be read, or redlock:fence is of another type

local identity, digest, config, maxTTL, margin, word = ARGV[1], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local fleet, misread, skew, fences = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[12] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local late = now > tonumber(ARGV[2]) + tonumber(ARGV[11])

-- A proxy may have led the connection from one server to another since INFO was asked for. Then the identity is not this
-- server's. Where a script cannot read INFO, only the client notices, with its next INFO.
local info = redis.pcall('INFO', 'server')
local process = type(info) == 'string' and string.match(info, '\nrun_id:(%S+)')
if process and string.sub(identity, 1, #process) ~= process then return {'unready', now} end

local refused -- why a key could not be read, most likely for a missing right
local function text(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then return value end
  -- What is no string is not ours. Anything else is unknown, and not "no marker".
  if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
    refused = {err = value.err .. ' (GET ' .. key .. ')'}
  end
end

local function isOther(reply) return type(reply) == 'table' and string.find(reply.err or '', 'WRONGTYPE', 1, true) end

-- tokensRefused is why no acquire can work here: another program made something else of the key that has the tokens.
local function tokensRefused()
  if not fences or not isOther(redis.pcall('ZSCORE', KEYS[4], '0')) then return end
  return {err = 'WRONGTYPE ' .. KEYS[4] .. ' is no sorted set, so the node grants nothing: a program has written to it; ' ..
    'delete that key on this node (docs/operations.md says what that costs)'}
end
local function number(n) return string.format('%.0f', n) end

local function admit(how)
  local why, former = tokensRefused(), nil
  if why then
    -- Up to version 2 of this protocol it was a hash. Its ballots still count. It is read before anything is written: the user
    -- may lack the right.
    former = redis.pcall('HGETALL', KEYS[4])
    if isOther(former) then return why end
    if former.err then return former end
  end
  redis.call('SET', KEYS[1], identity .. ' ' .. digest)
  redis.call('SET', KEYS[3], config)
  redis.call('DEL', KEYS[2])
  if fences then
    -- Redis keeps a small sorted set as a list, which it searches from end to end, unless a member is longer than 64
    -- bytes.
    if former then redis.call('DEL', KEYS[4]) end
    redis.call('ZADD', KEYS[4], 0, string.rep('-', 80))
    for i = 1, #(former or {}), 2 do
      if tonumber(former[i + 1]) then redis.call('ZADD', KEYS[4], former[i + 1], former[i]) end
    end
  end
  return {'ready', now, how}
end

local markedIdentity, markedDigest, ends
local marker = text(KEYS[1])
-- The end may be missing. With ' ?(%S*)$', a long text that is no marker would take its length squared (common.lua).
if marker then markedIdentity, markedDigest, ends = string.match(marker .. ' ', '^(%S+) (%S+) (%S*) ?$') end
local agreed = text(KEYS[3])
if refused then return refused end

-- The operator's word tells nothing of locks that were granted since, and that this server has forgotten since.
local function enroll()
  if late then return {'late', now} end
  return admit('enrolled')
end

if word == 'change' then return enroll() end

-- The configuration on a node binds a client, with two exceptions: the node is in quarantine, where nobody gets a lock;
-- or its data set is not the marked one, and the client may begin a quarantine there.
local same
if markedDigest then same = markedDigest == digest else same = not agreed or agreed == config end
local binds = not markedIdentity or ends == '' and (markedIdentity == identity or word ~= '' and word ~= 'durable')
if binds and not same then return {'differs', now, agreed or ''} end

if markedIdentity == identity and ends == '' then return tokensRefused() or {'ready', now, 'already'} end
if word == 'new' or word == 'new?' then
  local own = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
  if (markedIdentity and ends == '') or redis.call('DBSIZE') > own then return {'used', now} end
  if word == 'new?' then return {'new', now} end
  return enroll()
end
if word == 'enroll' then return enroll() end
-- A marker of another of the client's nodes came here with that node's data: this server was its replica, or got a copy of its
-- files. What it granted itself is not in there.
local copied = markedIdentity and string.find(ARGV[13] or '', ' ' .. string.match(markedIdentity, '^[^/#]*'), 1, true)
if markedIdentity and ends == '' and same and word == 'durable' and not copied then return admit('restarted') end

local own, others, longest
if markedIdentity then own, others, longest = string.match(ends, '^(%d+)/(%d+)/(%d+)$') end
own, others, longest = tonumber(own), tonumber(others), tonumber(longest)
-- Of another data set's quarantine, only the longest lease still counts.
if markedIdentity ~= identity then own, others = nil end

if word == 'look' then
  local left = own and math.max((own - now) / 1000, redis.call('PTTL', KEYS[2])) or 0
  if left > 0 then return {'quarantine', now, math.ceil(left)} end
  return {'unjudged', now}
end

local function confine()
  redis.call('SET', KEYS[1], identity .. ' ' .. digest .. ' ' .. number(own) .. '/' .. number(others) .. '/' .. number(longest))
  redis.call('SET', KEYS[2], identity, 'PX', math.max(1, math.ceil((own - now) / 1000)))
  redis.call('SET', KEYS[3], config)
end

-- Both clocks must say that the quarantine is over, so neither can end it alone. If one has moved against the other
-- since it began, nobody knows how much time has passed, and it begins again. So it does if the end is further away than a
-- quarantine lasts: this clock has gone back, and the others, if there are any, with it. Who knows the other clocks less
-- well than who began it tolerates as much as both may have misread them. So no two begin it in turn.
local tolerated = skew + 2 * misread
local moved = own and (own - now > (longest + margin) * 1000 + tolerated
  or fleet > 0 and math.abs((now - own) - (fleet - others)) > tolerated)
if own and not moved then
  -- Leases may be out that are longer than the client knew which began the quarantine.
  if maxTTL > longest then
    local more = (maxTTL - longest) * 1000
    own, longest, same = own + more, maxTTL, false
    if fleet > 0 then others = others + more end
  end
  local left = math.max((own - now) / 1000, redis.call('PTTL', KEYS[2]))
  if fleet > 0 then left = math.max(left, (others - fleet + misread) / 1000) end
  if left <= 0 then return admit('ended') end
  if not same then confine() end
  return {'quarantine', now, math.ceil(left)}
end

-- A new quarantine: the data set is another one, or nothing is known. Leases may be out as long as either configuration
-- allows. The time that the client brings is as old as its question: if that was on its way for too long, it may ask again.
if fleet > 0 and late then return {'late', now} end
longest = math.max(maxTTL, longest or 0, tonumber(string.match(agreed or '', 'MaxTTL (%d+)ms') or 0))
local length = longest + margin + math.ceil(misread / 1000)
own, others = now + length * 1000, 0
if fleet > 0 then others = fleet + length * 1000 end
confine()
return {'quarantine', now, length}
