-- Pair the heads of the task queue with the heads of the server-availability queue.
-- ARGV: prefix, lease_seconds, most
-- Returns {{job, slot, attempt, prompt}, ...}
if not all_serve_published() then return {} end
local leased, passed_over, in_vain = {}, {}, {}
while #leased < tonumber(ARGV[3]) and redis.call('EXISTS', key('waiting')) == 1 do
  local slot, list = take_slot()
  if not slot then break end
  local server = server_of(slot)
  local lease = not in_vain[server] and lease_next(slot, tonumber(ARGV[2]))
  if lease then
    redis.call('HINCRBY', key('loads'), server, 1)
    leased[#leased + 1] = lease
  else -- the jobs that wait were lost with its server: look through them once, not for each slot
    in_vain[server] = true
    passed_over[#passed_over + 1] = {slot, list}
  end
end
for i = #passed_over, 1, -1 do put_back(unpack(passed_over[i])) end
wake_feeders()
return leased
