-- Stop running attempts of these jobs; all of them wait for the next batch, oldest first.
-- ARGV: prefix, run, job... (oldest first; each queued, leased, or ended with its event to come)
-- Returns {job, slot, attempt, job, ...} of the leases ended.
local run, ended = ARGV[2], {}
for i = #ARGV, 3, -1 do
  local job = ARGV[i]
  local slot, attempt = end_lease(job)
  if slot then
    redis.call('LPUSH', of_run(run, 'tasks'), job)
    count(run, 'attempts_stopped', 1)
    ended[#ended + 1] = job
    ended[#ended + 1] = slot
    ended[#ended + 1] = attempt
  end
  count(run, 'recycled', 1)
end
return ended
