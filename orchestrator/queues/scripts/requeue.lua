-- Bring the prompt of a dead job back as a new group with a fresh budget. The dead of the old group
-- count as dropped: their successors take their place.
-- ARGV: prefix, run, members of a group, dead job, new group, prompt, its kind, its first members, row or ''
-- Returns 1; 0 if the job is not among the dead; -1 if the trainer has fed a group of the new name.
local run, members, job, group = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local dead = of_run(run, 'dead')
if redis.call('HEXISTS', dead, job) == 0 then return 0 end
if redis.call('SADD', of_run(run, 'fed'), group) == 0 then return -1 end
for member = 0, members - 1 do
  local other = job_of(run, group_of(job), member)
  if redis.call('HDEL', dead, other) == 1 then
    redis.call('HDEL', of_run(run, 'dead_prompts'), other)
    redis.call('HDEL', of_run(run, 'history'), other)
    count(run, 'dead', -1)
    count(run, 'dropped', 1)
  end
end
queue_group(run, group, ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9])
offer(run)
return 1
