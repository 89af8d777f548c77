-- One step of a fence: compare, raise, and write.
--
-- KEYS[1]   the key of the fence; then the keys of the commands, for Redis Cluster
-- ARGV[1]   raise: the fence rises to the stamp; check: it has to exist; seal: it rises, unless it is above
-- ARGV[2]   the stamp: 32 lower-case hexadecimal digits, which compare as strings (a number of Lua has 53 bits)
-- ARGV[3..] commands, each as the number of its arguments and these
--
-- Returns {"ok", reply...}, {"fenced", fence} or {"none"}.
local mode, stamp = ARGV[1], ARGV[2]
local fence = redis.call('GET', KEYS[1])
if fence and #fence ~= 32 then
  return redis.error_reply('ERR the value of ' .. KEYS[1] .. ' is not a fence: it has ' .. #fence .. ' bytes, not 32 hexadecimal digits')
end
if mode == 'seal' then
  if not fence or fence < stamp then
    redis.call('SET', KEYS[1], stamp)
  end
  return {'ok'}
end
if mode == 'check' and not fence then
  return {'none'}
end
if fence and stamp < fence then
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
