-- Pair the head of the task queue with the head of the server-availability queue.
-- ARGV: prefix, lease_seconds
-- Returns {job, slot, attempt, prompt} or nil. Runs take turns, a job each.
while true do
  local run = redis.call('LINDEX', key('waiting'), 0)
  if not run then return nil end
  local slot = redis.call('LPOP', key('free'))
  if not slot then return nil end
  redis.call('LPOP', key('waiting'))
  local job = redis.call('LPOP', of_run(run, 'tasks'))
  if job then
    local attempt = redis.call('HINCRBY', of_run(run, 'attempts'), job, 1)
    redis.call('HSET', of_run(run, 'holders'), job, slot .. ' ' .. attempt)
    redis.call('HSET', key('slots'), slot, job .. ' ' .. attempt)
    redis.call('ZADD', key('leases'), now() + tonumber(ARGV[2]), job)
    offer(run)
    wake(of_run(run, 'news'))
    return {job, slot, attempt, redis.call('HGET', of_run(run, 'prompts'), group_of(job))}
  end
  redis.call('LPUSH', key('free'), slot)
end
