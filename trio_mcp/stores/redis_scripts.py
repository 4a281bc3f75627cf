"""What a Redis store does at the server: scripts, each of which runs as a whole."""

# Every key begins with one hash tag, so that all are in one slot of a cluster, and the scripts may make their names:
#
#   p .. 'r' record   a hash: v(ersion), x (time of expiry, by the clock of the server), o(wner), d(ata)
#   p .. 'l' log      a list: the number of the oldest entry, and the entries from the oldest on
#   p .. 'i' kind     the keys of a kind, and after another colon of each of its owners: a sorted set in the order of the keys
#   p .. 'alive'      a sorted set: until when each process lives, in milliseconds by the clock of the server
#   p .. 'about'      a hash: what each of them says about itself
#   p .. 'dead'       a sorted set: when each process was buried
#   p .. 'born'       when the store was first used: later than everything that was there before it was emptied
#
# Every key expires: an index not before its last record, what belongs to processes after a month without any.

from __future__ import annotations

from typing import Final

MONTH: Final = 30 * 86400 * 1000
"""Milliseconds for which a buried process is known: it must not be frozen for longer."""
YOUNG: Final = 2000
"""Milliseconds for which a new store buries no process: living processes have yet to renew their leases."""

FENCED: Final = -1
CONFLICT: Final = 0
MADE: Final = 1

_NAMES: Final = """
local p = KEYS[1]
local function record(kind, key) return p .. 'r' .. #kind .. ':' .. kind .. ':' .. key end
local function log(kind, key) return p .. 'l' .. #kind .. ':' .. kind .. ':' .. key end
local function index(kind, owner) return p .. 'i' .. #kind .. ':' .. kind .. owner end
"""
_ALSO_IF_FULL: Final = "#!lua flags=allow-oom"
"""Begins a script that needs next to no memory, and that processes cannot do without."""
_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# ARGV: how many names this process has, the names, and the changes one after the other. All is checked before anything is
# written. The versions that a write makes itself are in `made`.
WRITE: Final = (
    _NAMES
    + """
local i = 2 + tonumber(ARGV[1])
for n = 2, i - 1 do
  if redis.call('ZSCORE', p .. 'dead', ARGV[n]) then return -1 end
end
local todo, made = {}, {}
local function version(k)
  if made[k] then return made[k] end
  return redis.call('HGET', k, 'v') or '0'
end
while i <= #ARGV do
  local op, kind, key, expected = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if op == 'P' then
    local k = record(kind, key)
    if version(k) ~= expected then return 0 end
    local new = tonumber(ARGV[i + 4]) or 1
    made[k] = new > 0 and tostring(expected + 1) or '0'
    todo[#todo + 1] = i
    i = i + 8
  elseif op == 'E' then
    if version(record(kind, key)) ~= expected then return 0 end
    i = i + 4
  elseif op == 'R' then
    local k = record(kind, key)
    if expected ~= '' and version(k) ~= expected then return 0 end
    made[k] = '0'
    todo[#todo + 1] = i
    i = i + 4
  elseif op == 'A' then
    todo[#todo + 1] = i
    i = i + 7 + tonumber(ARGV[i + 6])
  else
    todo[#todo + 1] = i
    i = i + 3
  end
end

local function unlist(kind, key, owner)
  redis.call('ZREM', index(kind, ''), key)
  redis.call('ZREM', index(kind, ':' .. owner), key)
end
local function remove(kind, key)
  local k = record(kind, key)
  local owner = redis.call('HGET', k, 'o')
  if owner then
    redis.call('DEL', k)
    unlist(kind, key, owner)
  end
end
-- An index lives for as long as the record in it that lives longest.
local function list(k, key, ttl)
  local is_new = redis.call('EXISTS', k) == 0
  redis.call('ZADD', k, 0, key)
  if ttl == '' then redis.call('PERSIST', k)
  elseif is_new then redis.call('PEXPIRE', k, ttl)
  else redis.call('PEXPIRE', k, ttl, 'GT') end
end
local function expire(k, ttl)
  if ttl == '' then redis.call('PERSIST', k) else redis.call('PEXPIRE', k, ttl) end
end

for _, i in ipairs(todo) do
  local op, kind, key = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if op == 'P' then
    local k, ttl, owner = record(kind, key), ARGV[i + 4], ARGV[i + 6]
    if ttl ~= '' and tonumber(ttl) <= 0 then remove(kind, key)
    else
      local before = redis.call('HGET', k, 'o')
      redis.call('HSET', k, 'v', ARGV[i + 3] + 1, 'x', ARGV[i + 5], 'o', owner, 'd', ARGV[i + 7])
      expire(k, ttl)
      if before and before ~= owner then unlist(kind, key, before) end
      list(index(kind, ''), key, ttl)
      list(index(kind, ':' .. owner), key, ttl)
    end
  elseif op == 'R' then remove(kind, key)
  elseif op == 'F' then redis.call('DEL', log(kind, key))
  else
    local k, ttl, keep = log(kind, key), ARGV[i + 4], tonumber(ARGV[i + 5])
    local first, count = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 6])
    local head = tonumber(redis.call('LINDEX', k, 0) or first)
    local have = redis.call('LLEN', k) - 1
    if have < 0 or first < head or first > head + have then
      -- A script that has written is not refused any more by a server that is full.
      if have >= 0 then redis.call('DEL', k) end
      redis.call('RPUSH', k, first)
      head, have = first, 0
    elseif first < head + have then
      redis.call('LTRIM', k, 0, first - head)
      have = first - head
    end
    for n = 1, count do redis.call('RPUSH', k, ARGV[i + 6 + n]) end
    have = have + count
    if keep and have > keep then
      redis.call('LTRIM', k, have - keep + 1, -1)
      redis.call('LPUSH', k, head + have - keep)
    end
    if ttl ~= '' and tonumber(ttl) <= 0 then redis.call('DEL', k) else expire(k, ttl) end
  end
end
return 1
"""
)

# ARGV: kind, owner after a colon or nothing for all, the key before the first, how many. A record that has expired is taken out
# of the index when it is found there, if the server takes writes.
LIST: Final = (
    _NAMES
    + """
local kind, wanted = ARGV[1], tonumber(ARGV[4])
local k, low, found = index(kind, ARGV[2]), ARGV[3] == '' and '-' or '(' .. ARGV[3], {}
while #found < wanted do
  local keys = redis.call('ZRANGEBYLEX', k, low, '+', 'LIMIT', 0, wanted - #found)
  if #keys == 0 then break end
  for _, key in ipairs(keys) do
    local values = redis.call('HMGET', record(kind, key), 'v', 'x', 'o', 'd')
    if values[1] then found[#found + 1] = {key, values[1], values[2], values[3], values[4]}
    else redis.pcall('ZREM', k, key) end
  end
  low = '(' .. keys[#keys]
end
return found
"""
)

# ARGV: kind, key, the number before the first, how many.
ENTRIES: Final = (
    _NAMES
    + """
local k, after = log(ARGV[1], ARGV[2]), tonumber(ARGV[3])
local head = tonumber(redis.call('LINDEX', k, 0))
if not head or after + 1 < head then return 'gone' end
if after > head + redis.call('LLEN', k) - 2 then return 'none' end
local from = after + 2 - head
return redis.call('LRANGE', k, from, from + tonumber(ARGV[4]) - 1)
"""
)

# ARGV: milliseconds of a lease; of each process its name and what it says about itself. A process that was buried is returned,
# after the time.
RENEW: Final = (
    _ALSO_IF_FULL
    + _NAMES
    + _NOW
    + f"""
local reply = {{now}}
redis.call('SET', p .. 'born', now, 'NX', 'PX', {MONTH})
redis.call('PEXPIRE', p .. 'born', {MONTH})
for i = 2, #ARGV, 2 do
  if redis.call('ZSCORE', p .. 'dead', ARGV[i]) then reply[#reply + 1] = ARGV[i]
  else
    redis.call('ZADD', p .. 'alive', now + ARGV[1], ARGV[i])
    redis.call('HSET', p .. 'about', ARGV[i], ARGV[i + 1])
  end
end
redis.call('PEXPIRE', p .. 'alive', {MONTH})
redis.call('PEXPIRE', p .. 'about', {MONTH})
return reply
"""
)

# ARGV: the process, and until when one whose lease has lapsed may be buried, in milliseconds; nothing of one that leaves.
BURY: Final = (
    _ALSO_IF_FULL
    + _NAMES
    + _NOW
    + f"""
local node, latest = ARGV[1], ARGV[2]
if redis.call('ZSCORE', p .. 'dead', node) then return 1 end
if latest ~= '' then
  local born = tonumber(redis.call('GET', p .. 'born') or now)
  local alive = tonumber(redis.call('ZSCORE', p .. 'alive', node) or 0)
  if now > (tonumber(latest) or 0) or alive > now or now < born + {YOUNG} then return 0 end
end
redis.call('ZADD', p .. 'dead', now, node)
redis.call('ZREMRANGEBYSCORE', p .. 'dead', '-inf', now - {MONTH})
redis.call('PEXPIRE', p .. 'dead', {MONTH})
redis.call('ZREM', p .. 'alive', node)
redis.call('HDEL', p .. 'about', node)
return 1
"""
)

NODES: Final = (
    _NAMES
    + _NOW
    + """
local found = {}
for _, node in ipairs(redis.call('ZRANGEBYSCORE', p .. 'alive', '(' .. now, '+inf')) do
  found[#found + 1] = node
  found[#found + 1] = redis.call('HGET', p .. 'about', node) or ''
end
return found
"""
)

ALL: Final = (WRITE, LIST, ENTRIES, RENEW, BURY, NODES)


def name_of(letter: str, kind: bytes, rest: bytes) -> bytes:
    """Return the name of a key after the prefix, as the scripts make it."""
    return b"%b%d:%b:%b" % (letter.encode(), len(kind), kind, rest)
