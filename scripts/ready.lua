-- Ready (protocol steps Q1 to Q3): may this node grant? If it may have forgotten what it granted, begin or go on
-- with a quarantine, and end it when its time is over.
--
-- KEYS[1]    redlock:node, the marker
-- KEYS[2]    redlock:quarantine, which exists while a quarantine lasts
-- KEYS[3]    redlock:config, the configuration that the clients agree on
-- KEYS[4]    redlock:fence
-- ARGV[1]    identity of this server's data set, as INFO told it on this very connection
-- ARGV[2]    digest of the client's configuration
-- ARGV[3]    the configuration
-- ARGV[4]    MaxTTL, milliseconds
-- ARGV[5]    how long a quarantine lasts beyond MaxTTL, milliseconds
-- ARGV[6]    what the client asks for:
--              "look"     nothing: it does not hear enough nodes to begin or to end a quarantine
--              ""         the usual
--              "durable"  the same, and a restart has forgotten nothing
--              "enroll"   an operator vouches that no lease is out
--              "new"      the same, but only on a server that has never been used
--              "change"   the same, also if the configuration is another one
-- ARGV[7]    the time by the clocks of the other nodes, microseconds; "0": there are none
-- ARGV[8]    how far the two clocks may move against each other, or seem to, microseconds
-- ARGV[9]    "1": the client keeps fencing tokens
--
-- The marker is "<identity> <digest>" on a node that may grant, and "<identity> <digest> <end>/<end>/<longest>" on one
-- in quarantine: until that time of this server, and that time of the other nodes, in microseconds. Longest is the
-- longest lease that may be out, in milliseconds.
--
-- Replies
--   {"ready", time, how}          it may grant; how: "already", "ended" (the quarantine is over), "restarted", "enrolled"
--   {"quarantine", time, left}    not before so many milliseconds
--   {"unjudged", time}            it may have forgotten, and this client must not judge
--   {"differs", time, text}       the node has another configuration than the client
--   {"used", time}                "new" was asked for, and it is not
-- where time is this server's TIME in microseconds.

local identity, digest, config, maxTTL, margin, word = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local fleet, skew = tonumber(ARGV[7]), tonumber(ARGV[8])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function text(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then return value end
end
local function number(n) return string.format('%.0f', n) end

local function admit(how)
  redis.call('SET', KEYS[1], identity .. ' ' .. digest)
  redis.call('SET', KEYS[3], config)
  redis.call('DEL', KEYS[2])
  if ARGV[9] == '1' then
    -- Small hashes are lists, searched from end to end, as long as no field is longer than 64 bytes.
    redis.call('HSET', KEYS[4], string.rep('-', 80), '')
  end
  return {'ready', now, how}
end

local markedIdentity, markedDigest, ends
local marker = text(KEYS[1])
if marker then markedIdentity, markedDigest, ends = string.match(marker, '^(%S+) (%S+) ?(%S*)$') end
local agreed = text(KEYS[3])

if word == 'change' then return admit('enrolled') end

-- The configuration on a node binds those who ask, unless the node is in quarantine, where nobody holds anything. It
-- does not bind either where the data set is not the one that was marked, and the client hears enough others that
-- agree with its own.
local same
if markedDigest then same = markedDigest == digest else same = not agreed or agreed == config end
local binds = not markedIdentity or ends == '' and (markedIdentity == identity or word ~= '' and word ~= 'durable')
if binds and not same then return {'differs', now, agreed or ''} end

if markedIdentity == identity and ends == '' then return {'ready', now, 'already'} end
if word == 'new' then
  local own = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
  if (markedIdentity and ends == '') or redis.call('DBSIZE') > own then return {'used', now} end
  return admit('enrolled')
end
if word == 'enroll' then return admit('enrolled') end
if markedIdentity and ends == '' and same and word == 'durable' then return admit('restarted') end

local own, others, longest
if markedIdentity then own, others, longest = string.match(ends, '^(%d+)/(%d+)/(%d+)$') end
own, others, longest = tonumber(own), tonumber(others), tonumber(longest)
if markedIdentity ~= identity then own, others = nil end -- another's, of which only the longest lease still counts

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

-- Both clocks must say that it is over, so that neither alone can end it. If one has moved against the other since it
-- began, nobody knows how much time has passed, and it begins again.
if own and (fleet == 0 or math.abs((now - own) - (fleet - others)) <= skew) then
  if maxTTL > longest then -- leases may be out that are longer than whoever began it knew
    own, longest, same = own + (maxTTL - longest) * 1000, maxTTL, false
    if fleet > 0 then others = others + (own - now) - (others - fleet) end
  end
  local left = math.max((own - now) / 1000, (others - fleet) / 1000, redis.call('PTTL', KEYS[2]))
  if left <= 0 then return admit('ended') end
  if not same then confine() end
  return {'quarantine', now, math.ceil(left)}
end

-- Another server or data set, or nothing is known of any. Leases may be out that are as long as either configuration
-- allows.
longest = math.max(maxTTL, longest or 0, tonumber(string.match(agreed or '', 'MaxTTL (%d+)ms') or 0))
local length = longest + margin
own, others = now + length * 1000, 0
if fleet > 0 then others = fleet + length * 1000 end
confine()
return {'quarantine', now, length}
