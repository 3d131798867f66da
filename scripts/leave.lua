-- Leave (W2): a client that gave up waiting is taken out of the queues. A key that is kept for it, or free, is kept for
-- the next who waits, who may have been told nothing: a release that favours its own process tells nobody else.
--
-- KEYS       the lock keys, then for each, in the same order, who waits for it: redlock:wait:<key>
-- ARGV[1]    what a key holds that is kept for this client
-- ARGV[2]    how long a key is kept for who waits, milliseconds
--
-- Reply: 0. Who waits hears of it as release.lua says.

local count = #KEYS / 2
for i = 1, count do
  local key, waiting = KEYS[i], KEYS[count + i]
  redis.pcall('ZREM', waiting, ARGV[1], ARGV[1] .. ':poll')
  local owner = redis.pcall('GET', key)
  if not owner or owner == ARGV[1] then
    local keep, next = tonumber(ARGV[2])
    while true do
      local first = redis.pcall('ZPOPMIN', waiting)
      next = first[1]
      if not next then break end
      if string.sub(next, -5) == ':poll' then
        next, keep = string.sub(next, 1, -6), 2 * keep
        redis.pcall('PUBLISH', 'redlock:released:' .. next, key) -- by now it may hear
        local behind = redis.pcall('ZRANGE', waiting, 0, 0)[1]
        if behind then redis.pcall('PUBLISH', 'redlock:released:' .. behind, next .. ' ' .. key) end
        break
      end
      local listeners = redis.pcall('PUBLISH', 'redlock:released:' .. next, key)
      if type(listeners) ~= 'number' then -- nobody can be told: it keeps its place
        redis.pcall('ZADD', waiting, first[2], next)
        next = nil
        break
      end
      if listeners > 0 then break end -- else that client has gone
    end
    if next then
      redis.call('SET', key, next, 'PX', keep)
    elseif owner then
      redis.call('DEL', key)
    end
  end
end
return 0
