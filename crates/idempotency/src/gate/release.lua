-- Gives a place back, if it is still held by this token.
-- KEYS[1] name; ARGV[1] token. 1 released, 0 not ours.
local held = redis.call('GET', KEYS[1])
if held and #held == 75 and string.sub(held, 2, 2) == 'R' and string.sub(held, 60, 75) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
