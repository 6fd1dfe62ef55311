-- Frees a place whose owner is provably gone, for an operator. KEYS[1] name; ARGV[1] account as in the value. 1 freed, 0 nothing held.
local held = redis.call('GET', KEYS[1])
if held and (#held == 75 or #held == 91) and string.sub(held, 2, 2) == 'R' and string.sub(held, 44, 51) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
