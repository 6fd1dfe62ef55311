-- Whether a place is taken. KEYS[1] name; ARGV[1] account as in the value. 1 running, 0 anything else.
local held = redis.call('GET', KEYS[1])
if held and (#held == 75 or #held == 91) and string.sub(held, 2, 2) == 'R' and string.sub(held, 44, 51) == ARGV[1] then return 1 end
return 0
