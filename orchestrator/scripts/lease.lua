-- Pair the heads of the task queue with the heads of the server-availability queue.
-- ARGV: prefix, lease_seconds, most
-- Returns {{job, slot, attempt, prompt}, ...}
local leased = {}
while #leased < tonumber(ARGV[3]) and redis.call('LLEN', key('waiting')) > 0 do
  local slot = redis.call('LPOP', key('free'))
  if not slot then break end
  local lease = lease_next(slot, tonumber(ARGV[2]))
  if not lease then
    redis.call('LPUSH', key('free'), slot)
    break
  end
  leased[#leased + 1] = lease
end
return leased
