-- An attempt ended. ARGV: prefix, job, slot, attempt, outcome, result, reward, error
-- Returns 'accepted', 'duplicate', 'requeued', 'dead' or 'stale'.
local job, slot, attempt, outcome = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local run = run_of(job)
if redis.call('HGET', key('slots'), slot) == job .. ' ' .. attempt then
  free_slot(slot)
end
if redis.call('HGET', of_run(run, 'holders'), job) ~= slot .. ' ' .. attempt then
  if redis.call('HGET', of_run(run, 'receipts'), job) == attempt then return 'duplicate' end
  return 'stale'
end
end_lease(job)
if outcome == 'completed' then
  redis.call('HSET', of_run(run, 'results'), job, ARGV[6])
  redis.call('HSET', of_run(run, 'receipts'), job, attempt)
  count(run, 'accepted', 1)
  redis.call('HINCRBYFLOAT', of_run(run, 'counts'), 'rewards_sum', ARGV[7])
  add_event(run, {type = 'ResultAccepted', job_id = job, reward = tonumber(ARGV[7])})
  return 'accepted'
end
if outcome == 'cancelled' then
  requeue(job)
  return 'requeued'
end
return charge(job, ARGV[8])
