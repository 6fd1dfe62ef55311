-- Gives a place back, if it is still held by this token.
-- KEYS[1] name; KEYS[2] (serialised commands) the caller's lock; ARGV[1] token. 1 released, 0 not ours.
if KEYS[2] and redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
local held = redis.call('GET', KEYS[1])
if held and (#held == 75 or #held == 91) and string.sub(held, 2, 2) == 'R' and string.sub(held, 60, 75) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
