-- Forget a group: its prompt, its jobs, its results. ARGV: prefix, run, job... (all of one group)
-- Returns {job, slot, attempt, job, ...} of the leases ended.
local run, ended = ARGV[2], {}
for i = 3, #ARGV do
  local job = ARGV[i]
  local slot, attempt = end_lease(job)
  if slot then
    count(run, 'attempts_stopped', 1)
    count(run, 'dropped', 1)
    ended[#ended + 1] = job
    ended[#ended + 1] = slot
    ended[#ended + 1] = attempt
  elseif redis.call('LREM', of_run(run, 'tasks'), 1, job) == 1 then
    count(run, 'dropped', 1)
  end
  for _, name in ipairs({'attempts', 'failures', 'results', 'receipts'}) do
    redis.call('HDEL', of_run(run, name), job)
  end
end
redis.call('HDEL', of_run(run, 'prompts'), group_of(ARGV[3]))
return ended
