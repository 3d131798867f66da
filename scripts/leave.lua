-- Leave (protocol step W2): take a client that gave up waiting out of the queues. If a key is reserved for it, or free,
-- reserve the key for the next waiter. A free key counts too, because the next waiter may have received no message: a
-- release that hands the lock to a waiter of its own process sends none.
--
-- entries.lua stands in front of this.
--
-- KEYS       the lock keys; then the queue of each, in the same order: redlock:wait:<key>; then likewise
--            redlock:shared:<key>, and redlock:rw:<key>. If a waiter of a fair lock leaves (O3): then likewise
--            redlock:fair:ticket:<key>, and redlock:fair:until:<key>
-- ARGV[1]    the value of a key that is reserved for this client; or that waiter: "fair:<client id>:<number>"
-- ARGV[2]    how long a reservation lasts, milliseconds
--
-- Reply: 0. The next waiter gets a message as in release.lua.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fair = string.sub(ARGV[1], 1, 5) == 'fair:'
local count = #KEYS / (fair and 6 or 4)
for i = 1, count do
  local key, waiting = KEYS[i], KEYS[count + i]
  redis.pcall('ZREM', waiting, ARGV[1], ARGV[1] .. ':poll')
  redis.pcall('ZREM', KEYS[2 * count + i], ARGV[1], ARGV[1] .. ':poll')
  if fair then
    -- If another program has made something else of these keys, fair.lua says so. What is reserved is passed on all the same.
    redis.pcall('ZREM', KEYS[4 * count + i], ARGV[1])
    redis.pcall('ZREM', KEYS[5 * count + i], ARGV[1])
  end
  local what = look(key, now)
  -- A writer that gives up no longer keeps readers out (S2). The next one in order of arrival does so in its place.
  local intent = KEYS[3 * count + i]
  local who, asked = string.match(intentOf(intent), '^(%S+) (%d+)$')
  local next = fair and redis.pcall('ZRANGE', KEYS[4 * count + i], 0, 0, 'WITHSCORES') or {}
  if who == ARGV[1] then
    local ends = next[1] and tonumber(redis.pcall('ZSCORE', KEYS[5 * count + i], next[1]) or 0) or 0
    local left = math.ceil((ends - now) / 1000)
    if what == 'reader' and left > 0 then
      redis.call('SET', intent, next[1] .. ' ' .. whole(tonumber(next[2])), 'PX', left)
    else
      redis.call('DEL', intent)
      if what == 'reader' then begin(key, 1 / 0) end
    end
  elseif who == nobody and fair and not next[1] then -- only plain writers are left, and these do not keep a free key
    redis.call('SET', intent, 'next:' .. string.rep('0', 32) .. ' ' .. asked, 'PX', math.max(1, redis.call('PTTL', intent)))
  end
  if what == 'permit' then
    for _, entry in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      if ownerOf(entry) == ARGV[1] then
        drop(key, entry)
        reserve(key, entry, tonumber(ARGV[2]), now)
      end
    end
  end
  local owner = redis.pcall('GET', key)
  if not owner or owner == ARGV[1] then
    local next, keep = pop(key, 'redlock:wait:', tonumber(ARGV[2]))
    if next then
      redis.call('SET', key, next, 'PX', keep)
    elseif owner then
      redis.call('DEL', key)
    end
  end
end
return 0
