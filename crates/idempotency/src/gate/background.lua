-- A 202 was given: the operation's id goes behind the token, so that a retry is told the same operation.
-- KEYS[1] name; ARGV[1] token, ARGV[2] id, 16 bytes. 1 told, 0 not ours.
local held = redis.call('GET', KEYS[1])
if held and #held == 75 and string.sub(held, 2, 2) == 'R' and string.sub(held, 60, 75) == ARGV[1] then
  redis.call('SET', KEYS[1], held .. ARGV[2], 'KEEPTTL')
  return 1
end
return 0
