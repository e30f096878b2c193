-- Pair the heads of the task queue with the heads of the server-availability queue.
-- ARGV: prefix, lease_seconds, most
-- Returns {{job, slot, attempt, prompt}, ...}
local leased = {}
while #leased < tonumber(ARGV[3]) and redis.call('EXISTS', key('waiting')) == 1 do
  local slot = take_slot()
  if not slot then break end
  local lease = lease_next(slot, tonumber(ARGV[2]))
  if not lease then
    offer_slot(slot, 'LPUSH')
    break
  end
  redis.call('HINCRBY', key('loads'), server_of(slot), 1)
  leased[#leased + 1] = lease
end
return leased
