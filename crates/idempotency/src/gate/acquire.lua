-- Takes the place of a key, or says what holds it.
-- KEYS[1] name; KEYS[2] (serialised commands) the caller's lock; ARGV[1] the running value (see value.rs for the offsets), ARGV[2] lease in ms.
-- F fresh: the place is ours (also when our own token is found: this attempt's earlier acquire was executed)
-- R running, same request   MR running, another request   MD done, another request
-- L another operation of this caller runs
-- O.. running in the background: behind the letter, the id of its operation
-- B done, reply not kept here   U not readable here       otherwise the done value itself
local mine = ARGV[1]
local held = redis.call('GET', KEYS[1])
-- The replay first, and in few steps: format, then generation, fingerprint and account in one piece, then the state.
if held and string.byte(held) == string.byte(mine) and string.sub(held, 3, 51) == string.sub(mine, 3, 51) then
  local state = string.sub(held, 2, 2)
  if state == 'D' or state == 'N' then return held end
end
local token = string.sub(mine, 60, 75)
if held then
  if #held < 59 or string.sub(held, 1, 1) ~= string.sub(mine, 1, 1)
      or string.sub(held, 44, 51) ~= string.sub(mine, 44, 51) then
    return 'U'
  end
  if string.sub(held, 3, 10) == string.sub(mine, 3, 10) then
    local state = string.sub(held, 2, 2)
    if state == 'R' and string.sub(held, 60, 75) == token then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      if KEYS[2] then redis.call('SET', KEYS[2], token, 'PX', ARGV[2]) end
      return 'F'
    end
    if string.sub(held, 11, 11) == string.sub(mine, 11, 11) and string.sub(held, 12, 43) ~= string.sub(mine, 12, 43) then
      if state == 'R' then return 'MR' end
      return 'MD'
    end
    if state == 'R' then
      -- A fingerprint of another version is compared outside.
      if string.sub(held, 11, 11) ~= string.sub(mine, 11, 11) then return held end
      if #held == 91 then return 'O' .. string.sub(held, 76, 91) end
      return 'R'
    end
    if state == 'B' then return 'B' end
    if state == 'D' or state == 'N' then return held end
    return 'U'
  end
  -- Another generation of the database: a miss.
end
if KEYS[2] then
  local owner = redis.call('GET', KEYS[2])
  if owner and owner ~= token then return 'L' end
  redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
end
redis.call('SET', KEYS[1], mine, 'PX', ARGV[2])
return 'F'
