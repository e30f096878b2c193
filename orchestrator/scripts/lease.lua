-- Pair the heads of the task queue with the heads of the server-availability queue.
-- ARGV: prefix, lease_seconds, most
-- Returns {{job, slot, attempt, prompt}, ...}
local leased, passed_over = {}, {}
while #leased < tonumber(ARGV[3]) and redis.call('EXISTS', key('waiting')) == 1 do
  local slot = take_slot()
  if not slot then break end
  local lease = lease_next(slot, tonumber(ARGV[2]))
  if lease then
    redis.call('HINCRBY', key('loads'), server_of(slot), 1)
    leased[#leased + 1] = lease
  else -- the jobs that wait were lost with its server
    passed_over[#passed_over + 1] = slot
  end
end
for i = #passed_over, 1, -1 do offer_slot(passed_over[i], 'LPUSH') end
return leased
