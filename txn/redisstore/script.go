package redisstore

// prelude has the functions of the scripts. Strings are compared by sorted sets only: "<" of Lua
// depends on the locale of the server.
//
// fields returns what an answer says of a row, with "" for what is absent.
const prelude = `
local function first(stamps, min, max)
  return redis.call('ZRANGEBYLEX', stamps, min, max, 'LIMIT', 0, 1)[1] or ''
end

local function last(stamps, max, min)
  return redis.call('ZREVRANGEBYLEX', stamps, max, min, 'LIMIT', 0, 1)[1] or ''
end

local function fields(row, stamps, at, start)
  local head = redis.call('HMGET', row, 'rev', 'lock')
  if not head[1] then return {'', '', '', '', '', '', '', ''} end
  local version, value = last(stamps, '[v' .. at, '[v'), ''
  if version ~= '' then value = redis.call('HGET', row, version) end
  local record = ''
  if start ~= '' then record = redis.call('HGET', row, 'r' .. start) or '' end
  return {head[1], head[2] or '', version, value, last(stamps, '+', '[v'), first(stamps, '[v', '+'),
    record, first(stamps, '[r', '(s')}
end

local function points(key)
  if not key then return {'', ''} end
  local p = redis.call('HMGET', key, 'safe', 'resolved')
  return {p[1] or '', p[2] or ''}
end
`

// notAbove compares timestamps.
const notAbove = `
local function notAbove(a, b)
  local high, low = struct.unpack('>I4I4', a)
  local otherHigh, otherLow = struct.unpack('>I4I4', b)
  return high < otherHigh or high == otherHigh and low <= otherLow
end
`

var (
	// openScript registers the number of parts if there is none, and returns the one that is there.
	//
	// KEYS: none, parts. ARGV: the number of parts.
	openScript = newScript(`
redis.call('DEL', KEYS[1])
redis.call('SETNX', KEYS[2], ARGV[1])
return redis.call('GET', KEYS[2])
`)

	// readScript returns the points and the fields of a row.
	//
	// KEYS: none, row, stamps and, if they are in the same part, points. ARGV: at, start or "".
	readScript = newScript(prelude + `
redis.call('DEL', KEYS[1])
return {points(KEYS[4]), fields(KEYS[2], KEYS[3], ARGV[1], ARGV[2])}
`)

	// scanScript returns the points, whether there may be more rows, and the rows of a range, each as a
	// key and fields. The keys of the rows are not among KEYS; they are in the same part.
	//
	// KEYS: none, keys and, if they are in the same part, points. ARGV: the smallest and largest member,
	// at, the largest number of rows, the number of bytes after which no row is added, and the prefixes
	// of row and stamps.
	scanScript = newScript(prelude + `
redis.call('DEL', KEYS[1])
local keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[4])
local rows, size, more = {}, 0, 0
if #keys == tonumber(ARGV[4]) then more = 1 end
for _, key in ipairs(keys) do
  if size > tonumber(ARGV[5]) then
    more = 1
    break
  end
  local f = fields(ARGV[6] .. key, ARGV[7] .. key, ARGV[3], '')
  size = size + #f[2] + #f[4]
  rows[#rows + 1] = {key, f}
end
return {points(KEYS[3]), more, rows}
`)

	// writeScript applies a change if the row has a revision, and returns whether it did. A full server
	// refuses a script whose first write may need memory, before it has done anything. A change that
	// adds nothing begins with a write that needs none, so it is always accepted.
	//
	// KEYS: none, row, stamps, keys, points. ARGV: the key, the revision to compare or "", the next one, the lock
	// or "", the stamp and the value of a version or "", the stamp and the commit timestamp of a record
	// or "", the stamps before which versions and records are dropped or "", and the commit timestamp again, "" also for a mark. It returns 2 if that is sealed.
	writeScript = newScript(notAbove + `
local row, stamps = KEYS[2], KEYS[3]
local lock, version, record = ARGV[4], ARGV[5], ARGV[7]

local function drop(kind, before)
  if before == '' then return end
  local old = redis.call('ZRANGEBYLEX', stamps, '[' .. kind, '(' .. before)
  for i = 1, #old, 1000 do
    redis.call('HDEL', row, unpack(old, i, math.min(i + 999, #old)))
  end
  redis.call('ZREMRANGEBYLEX', stamps, '[' .. kind, '(' .. before)
end

if (redis.call('HGET', row, 'rev') or '') ~= ARGV[2] then
  redis.call('DEL', KEYS[1])
  return 0
end
local sealed = ARGV[11] ~= '' and redis.call('HGET', KEYS[5], 'sealed')
if sealed and notAbove(ARGV[11], sealed) then
  redis.call('DEL', KEYS[1])
  return 2
end
if lock == '' and version == '' and record == '' then redis.call('HDEL', row, 'lock') end
redis.call('HSET', row, 'rev', ARGV[3])
if lock ~= '' then redis.call('HSET', row, 'lock', lock) else redis.call('HDEL', row, 'lock') end
if version ~= '' then
  redis.call('ZADD', stamps, 0, version)
  redis.call('HSET', row, version, ARGV[6])
end
if record ~= '' then
  redis.call('ZADD', stamps, 0, record)
  redis.call('HSET', row, record, ARGV[8])
end
drop('v', ARGV[9])
drop('r', ARGV[10])
if lock == '' and redis.call('EXISTS', stamps) == 0 then
  redis.call('DEL', row)
  redis.call('ZREM', KEYS[4], ARGV[1])
elseif ARGV[2] == '' then
  redis.call('ZADD', KEYS[4], 0, ARGV[1])
end
return 1
`)

	// pointsScript returns the points. KEYS: none, points.
	pointsScript = newScript(prelude + `
redis.call('DEL', KEYS[1])
return points(KEYS[2])
`)

	// raiseScript raises the points, or the fence. KEYS: points. ARGV: safe, resolved or sealed, and its value; and so on.
	raiseScript = newScript(notAbove + `
for i = 1, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  local now = redis.call('HGET', KEYS[1], field)
  if now and notAbove(value, now) then value = now end
  redis.call('HSET', KEYS[1], field, value)
end
return 1
`)
)
