-- Common: what most scripts need. These functions stand in front of them, and of entries.lua (script.go); they are no script
-- of their own.
--
-- Another program may have written under any key, and its text may be long. So a pattern that repeats something begins with
-- "^", or cannot fail far from where it began. '%S*$' is neither: it begins anew at each character and goes on to the next
-- white space each time. For 32000 characters that took seconds, in which the server did nothing else.

-- ownerOf is the owner token in an entry, which is all of it for a mutex: what follows the last white space.
local function ownerOf(entry) return string.match(entry, '^.*%s(.*)$') or entry end

-- isMute reports whether the owner's client may not publish: the digits are in capital letters (release.lua).
local function isMute(entry) return string.find(ownerOf(entry), '^%x*[A-F]') ~= nil end

-- sayWanted tells the clients of the holders of a key that there is a new waiter (Lease.Wanted). An owner token names its
-- client.
local function sayWanted(key, holders)
  local told = {}
  for _, entry in ipairs(holders) do
    local holder = string.match(ownerOf(entry), '^%x+:(%x+):')
    if holder and not told[holder] then
      told[holder] = true
      redis.pcall('PUBLISH', 'redlock:released:wanted:' .. holder, key)
    end
  end
end

-- tell sends a message about the key to a waiter: the key, or this text. That of a fair lock (O3) gets its own name and the
-- key, on its client's channel.
local function tell(member, key, text)
  if string.sub(member, 1, 5) == 'fair:' then
    return redis.pcall('PUBLISH', 'redlock:released:next:' .. string.sub(member, 6, 37), member .. ' ' .. key)
  end
  return redis.pcall('PUBLISH', 'redlock:released:' .. string.gsub(member, ':poll$', ''), text or key)
end

-- shown is what a refusal says of the owner. Waiters ask often, and another program's text may be long. An owner token has at
-- most 1579 bytes (owner.go), so it is whole. inspect.lua shows all: a release by force compares it.
local function shown(owner) return string.sub(owner, 1, 2048) end

-- kindOf is 'reader' or 'permit', or nil if this is no entry of a lock that several share (entries.lua).
local function kindOf(entry)
  return string.match(entry or '', '^(reader) %S+$') or string.match(entry or '', '^(permit) [%d,]+/%d+ %S+$')
end

-- name is what a refusal calls the owner of a key of that kind, which has none of its own; '' if it is no lock.
local function name(kind)
  if kind == 'reader' or kind == 'permit' then return kind .. 's' end
  return ''
end

-- nameOf is that of a key that is no string.
local function nameOf(key) return name(kindOf(redis.pcall('ZRANGE', key, -1, -1)[1])) end
