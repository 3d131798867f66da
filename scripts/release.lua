-- Release (protocol steps A5, L1): delete the lock keys that are still the owner's. If a key has waiters here, reserve
-- it for the first of them for a short time instead (W2). common.lua stands in front of this.
--
-- KEYS       the lock keys
-- ARGV[1]    owner token
-- ARGV[2]    how long a reservation lasts, milliseconds; "0": make none
-- ARGV[3]    a minimum hold (H2): do not delete the key, but let the owner keep it for at most so many milliseconds.
--            Absent or "0": there is none
--
-- Reply: how many keys were the owner's; negative if one was reserved. Fewer than all: the lock was no longer ours.
--
-- The reservation
--   The key holds "next:<client id>", and the client gets a message on its own channel. Messages are only hints: a
--   server that forbids them (an ACL) still releases. With a minimum hold, the first waiter gets a message too: it
--   asks, and learns when the key expires.
--
-- Clients without messages
--   A waiter that is queued as "next:<client id>:poll" gets no messages and polls. Its reservation lasts twice as long.
--   The waiter behind it gets the message "next:<client id> <key>" (that of a fair lock: its own), and looks whether the
--   reservation was used.
--   A client that may not publish has owner tokens whose 32 digits are in capital letters. A waiter that meets one polls.
--
-- Those that have gone
--   A waiter whose process died stays queued while others keep the queue alive, so there may be thousands behind a lock that is
--   held for months. A release takes 256 of them out at most, in a millisecond or two, because the server does nothing else
--   meanwhile. Those further back ask by themselves, about every second.
--
-- Fair locks
--   A waiter of a fair lock is queued as "fair:<client id>:<number>". It gets a message with that text and the key, on its
--   client's channel, and nothing is reserved: its place in fair.lua's queue is enough. It stays in the queue here too. If
--   it has gone and could not leave, its client takes it out (leave.lua), so the next waiter is told.

local released, kept, rest, gone = 0, false, ARGV[3] or '0', 0
for i = 1, #KEYS do
  local key = KEYS[i]
  local owner = redis.pcall('GET', key)
  if rest ~= '0' and owner == ARGV[1] then
    -- Only ever make the time shorter: a late release must not hold the lock longer.
    local left = redis.call('PTTL', key)
    if left < 0 or left > tonumber(rest) then redis.call('PEXPIRE', key, rest) end
    local first = redis.pcall('ZRANGE', 'redlock:wait:' .. key, 0, 0)[1]
    if first then tell(first, key) end
    released = released + 1
  elseif owner == ARGV[1] then
    local waiting, keep, next = 'redlock:wait:' .. key, tonumber(ARGV[2])
    while keep ~= 0 and gone < 256 do
      local first = redis.pcall('ZPOPMIN', waiting)
      next = first[1]
      if not next then break end
      if string.sub(next, 1, 5) == 'fair:' then
        if tell(next, key) ~= 0 then
          redis.pcall('ZADD', waiting, first[2], next)
          redis.pcall('PEXPIRE', waiting, 10000) -- it may have been the only one: then the key is a new one
          next = nil
          break
        end
      elseif string.sub(next, -5) == ':poll' then
        redis.pcall('ZREM', 'redlock:shared:' .. key, next) -- see below
        next, keep = string.sub(next, 1, -6), 2 * keep
        -- It may be able to hear by now.
        tell(next, key)
        local behind = redis.pcall('ZRANGE', waiting, 0, 0)[1]
        if behind then tell(behind, key, next .. ' ' .. key) end
        break
      else
        local listeners = tell(next, key)
        -- This client may not publish. If its token is in capitals, the waiter has met it and polls: reserve the key
        -- all the same. Otherwise the waiter keeps its place.
        local silent = type(listeners) ~= 'number'
        if silent and not string.find(string.sub(ARGV[1], 1, 32), '%u') then
          redis.pcall('ZADD', waiting, first[2], next)
          redis.pcall('PEXPIRE', waiting, 10000)
          next = nil
          break
        end
        -- If it may share the lock, it is in the queue of those too (entries.lua). One that has gone would stay there while
        -- others wait.
        redis.pcall('ZREM', 'redlock:shared:' .. key, next)
        if silent then keep = 2 * keep break end
        -- Without listeners, that client has gone: take the next one.
        if listeners > 0 then break end
      end
      next, gone = nil, gone + 1
    end
    if next then
      redis.call('SET', key, next, 'PX', keep)
      kept = true
    else
      redis.call('DEL', key)
    end
    released = released + 1
  elseif type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    return owner -- it could not be read, most likely for a missing right: unknown, and not another's
  end
end
if kept then return -released end
return released
