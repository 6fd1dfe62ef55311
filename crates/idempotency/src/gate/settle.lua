-- Publishes a committed answer until the record's own expiry.
-- KEYS[1] name; KEYS[2] (serialised commands) the caller's lock; ARGV[1] the done value, ARGV[2] its expiry in ms since 1970, ARGV[3] this attempt's token.
-- S settled   K kept: it is there   E expired already   U not readable: left alone
local done = ARGV[1]
local held = redis.call('GET', KEYS[1])
local own = false
-- Whatever becomes of the answer, the operation is over.
if KEYS[2] and redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('DEL', KEYS[2]) end
if held then
  if #held < 59 or string.sub(held, 1, 1) ~= string.sub(done, 1, 1)
      or string.sub(held, 44, 51) ~= string.sub(done, 44, 51) then
    return 'U'
  end
  local running = string.sub(held, 2, 2) == 'R'
  own = running and string.sub(held, 60, 75) == ARGV[3]
  -- Of two that are committed both say the same; what differs was spoiled.
  if held == done then return 'K' end
end
local time = redis.call('TIME')
if tonumber(ARGV[2]) <= time[1] * 1000 + math.floor(time[2] / 1000) then
  if own then redis.call('DEL', KEYS[1]) end
  return 'E'
end
local set = redis.pcall('SET', KEYS[1], done, 'PXAT', ARGV[2])
if set.err then
  -- Out of memory, say: a lease that nobody will settle must not stay.
  if own then redis.call('DEL', KEYS[1]) end
  return set
end
return 'S'
