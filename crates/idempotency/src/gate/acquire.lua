-- Takes the place of a key, or says what holds it.
-- KEYS[1] name; KEYS[2] (serialised commands) the caller's lock; ARGV[1], one text since each costs Redis: 51 bytes that the answer to
-- this request begins with, up to its account (see value.rs for the offsets), 16 bytes of token, the lease in ms.
-- F fresh: the place is ours (also when our own token is found: this attempt's earlier acquire was executed)
-- R running, same request   MR running, another request
-- L another operation of this caller runs
-- O.. running in the background: behind the letter, the id of its operation
-- B done, reply not kept here   U not readable here       otherwise the done value itself, also of another request
local wanted = ARGV[1]
local held = redis.call('GET', KEYS[1])
-- The replay first, in one step; of what is shorter, nothing can be made here or outside.
if held and string.find(wanted, string.sub(held, 1, 51), 1, true) == 1 then return held end
local token, lease = string.sub(wanted, 52, 67), string.sub(wanted, 68)
if held then
  if #held < 59 or string.sub(held, 1, 1) ~= string.sub(wanted, 1, 1)
      or string.sub(held, 44, 51) ~= string.sub(wanted, 44, 51) then
    return 'U'
  end
  if string.sub(held, 3, 10) == string.sub(wanted, 3, 10) then
    local state = string.sub(held, 2, 2)
    if state == 'R' and string.sub(held, 60, 75) == token then
      redis.call('PEXPIRE', KEYS[1], lease)
      if KEYS[2] then redis.call('SET', KEYS[2], token, 'PX', lease) end
      return 'F'
    end
    if string.sub(held, 11, 11) == string.sub(wanted, 11, 11) and string.sub(held, 12, 43) ~= string.sub(wanted, 12, 43) then
      if state == 'R' then return 'MR' end
      -- Whether it is whole, and of this key, is seen outside.
      return held
    end
    if state == 'R' then
      -- A fingerprint of another version is compared outside.
      if string.sub(held, 11, 11) ~= string.sub(wanted, 11, 11) then return held end
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
  redis.call('SET', KEYS[2], token, 'PX', lease)
end
local running = string.sub(wanted, 1, 1) .. 'R' .. string.sub(wanted, 3, 51) .. '\0\0\0\0\0\0\0\0' .. token
redis.call('SET', KEYS[1], running, 'PX', lease)
return 'F'
