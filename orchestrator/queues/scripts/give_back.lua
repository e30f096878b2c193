-- An assignment did not reach its server: the job waits again, first, not charged; the slot is
-- suspended until its server's next heartbeat. ARGV: prefix, job, slot, attempt, reason
local job, slot, attempt = ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', key('slots'), slot) == job .. ' ' .. attempt then vacate(slot) end
if redis.call('HGET', of_run(run_of(job), 'holders'), job) == slot .. ' ' .. attempt then
  end_lease(job)
  note(job, slot, attempt, 'given_back', ARGV[5])
  requeue(job)
end
