-- Vouch (protocol step A2): was this node one that may grant, until now? Sent behind the acquires of one flush that went
-- in their light form, on the same connection.
--
-- KEYS[1]    redlock:node, the marker of a node that may grant (ready.lua)
-- ARGV[1]    the marker that the client expects
--
-- Replies
--   integer              it is; this server's TIME in microseconds
--   {"unready", time}    the marker differs (Q1)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'unready', now} end
return now
