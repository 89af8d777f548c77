-- One step of a fence: compare, raise, and write.
--
-- KEYS[1]   the key of the fence; then the keys of the commands, for Redis Cluster
-- ARGV[1]   raise: the fence rises to the stamp; check: it has to exist; seal: it rises, unless it is above
-- ARGV[2]   the stamp: 32 lower-case hexadecimal digits
-- ARGV[3..] commands, each as the number of its arguments and these. None may name the key of the fence.
--
-- Returns {"ok", reply...}, {"fenced", fence} or {"none"}. If a command fails, the fence stays raised, and what the commands before it have written stays.

local mode, stamp = ARGV[1], ARGV[2]

local function is_stamp(s)
  return s and #s == 32 and not s:find('[^0-9a-f]')
end

-- below compares stamps. Strings do not serve: Lua compares them by the locale of the server. Numbers have 53 bits.
local function below(a, b)
  for i = 1, 32, 8 do
    local x, y = tonumber(a:sub(i, i + 7), 16), tonumber(b:sub(i, i + 7), 16)
    if x ~= y then
      return x < y
    end
  end
  return false
end

if mode ~= 'raise' and mode ~= 'check' and mode ~= 'seal' then
  return redis.error_reply('ERR want raise, check or seal')
end
if not is_stamp(stamp) then
  return redis.error_reply('ERR a stamp has 32 lower-case hexadecimal digits')
end
local fence = redis.call('GET', KEYS[1])
if fence and not is_stamp(fence) then
  return redis.error_reply('ERR the value of ' .. KEYS[1] .. ' is not a fence: it has not 32 lower-case hexadecimal digits')
end

if mode == 'seal' then
  if not fence or below(fence, stamp) then
    redis.call('SET', KEYS[1], stamp)
  end
  return {'ok'}
end
if mode == 'check' and not fence then
  return {'none'}
end
if fence and below(stamp, fence) then
  return {'fenced', fence}
end
if mode == 'raise' and fence ~= stamp then
  redis.call('SET', KEYS[1], stamp)
end
local out, i = {'ok'}, 3
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  out[#out + 1] = redis.call(unpack(ARGV, i + 1, i + n))
  i = i + n + 1
end
return out
