-- Leave (protocol step W2): take a client that gave up waiting out of the queues. If a key is reserved for it, or free,
-- reserve the key for the next waiter. A free key counts too, because the next waiter may have received no message: a
-- release that hands the lock to a waiter of its own process sends none.
--
-- KEYS       the lock keys, then the queue of each, in the same order: redlock:wait:<key>
--            If a waiter of a fair lock gives up (O3): then redlock:fair:ticket:<key> of each, and
--            redlock:fair:until:<key> of each
-- ARGV[1]    the value of a key that is reserved for this client; or that waiter: "fair:<client id>:<number>"
-- ARGV[2]    how long a reservation lasts, milliseconds
--
-- Reply: 0. The next waiter gets a message as in release.lua.

local fair = string.sub(ARGV[1], 1, 5) == 'fair:'
local count = #KEYS / (fair and 4 or 2)
for i = 1, count do
  local key, waiting = KEYS[i], KEYS[count + i]
  redis.pcall('ZREM', waiting, ARGV[1], ARGV[1] .. ':poll')
  if fair then
    redis.call('ZREM', KEYS[2 * count + i], ARGV[1])
    redis.call('ZREM', KEYS[3 * count + i], ARGV[1])
  end
  local owner = redis.pcall('GET', key)
  if not owner or owner == ARGV[1] then
    local keep, next = tonumber(ARGV[2])
    while true do
      local first = redis.pcall('ZPOPMIN', waiting)
      next = first[1]
      if not next then break end
      if string.sub(next, 1, 5) == 'fair:' then
        local told = redis.pcall('PUBLISH', 'redlock:released:next:' .. string.sub(next, 6, 37), next)
        if told ~= 0 then
          redis.pcall('ZADD', waiting, first[2], next)
          next = nil
          break
        end
      elseif string.sub(next, -5) == ':poll' then
        next, keep = string.sub(next, 1, -6), 2 * keep
        -- It may be able to hear by now.
        redis.pcall('PUBLISH', 'redlock:released:' .. next, key)
        local behind = redis.pcall('ZRANGE', waiting, 0, 0)[1]
        if behind then redis.pcall('PUBLISH', 'redlock:released:' .. behind, next .. ' ' .. key) end
        break
      else
        local listeners = redis.pcall('PUBLISH', 'redlock:released:' .. next, key)
        -- This client may not publish: the waiter keeps its place.
        if type(listeners) ~= 'number' then
          redis.pcall('ZADD', waiting, first[2], next)
          next = nil
          break
        end
        -- Without listeners, that client has gone: take the next one.
        if listeners > 0 then break end
      end
    end
    if next then
      redis.call('SET', key, next, 'PX', keep)
    elseif owner then
      redis.call('DEL', key)
    end
  end
end
return 0
