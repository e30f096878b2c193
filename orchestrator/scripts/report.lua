-- An attempt ended. ARGV: prefix, job, slot, attempt, outcome, result, reward, error, lease_seconds
-- With lease_seconds the slot of a completed job may take its next job at once.
-- Returns {receipt} or {receipt, job, slot, attempt, prompt}; the receipt is 'accepted',
-- 'duplicate', 'requeued', 'dead' or 'stale'.
local job, slot, attempt, outcome = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local run = run_of(job)
local frees = redis.call('HGET', key('slots'), slot) == job .. ' ' .. attempt

local function settle()
  if redis.call('HGET', of_run(run, 'holders'), job) ~= slot .. ' ' .. attempt then
    if redis.call('HGET', of_run(run, 'receipts'), job) == attempt then return 'duplicate' end
    return 'stale'
  end
  end_lease(job)
  if outcome == 'completed' then
    redis.call('HSET', of_run(run, 'results'), job, ARGV[6])
    redis.call('HSET', of_run(run, 'receipts'), job, attempt)
    local leased_at = redis.call('HGET', of_run(run, 'times'), job)
    redis.call('HSET', of_run(run, 'times'), job, string.format('%s %.3f', leased_at, now()))
    server_succeeded(server_of(slot))
    count(run, 'accepted', 1)
    redis.call('HINCRBYFLOAT', of_run(run, 'counts'), 'rewards_sum', ARGV[7])
    add_event(run, {type = 'ResultAccepted', job_id = job, reward = tonumber(ARGV[7])})
    return 'accepted'
  end
  if outcome == 'cancelled' then
    note(job, slot, attempt, 'cancelled', ARGV[8])
    requeue(job)
    return 'requeued'
  end
  server_failed(server_of(slot), job)
  return charge(job, slot, attempt, 'failed', ARGV[8])
end

-- What the slot runs now, for a server that did not hear the answer that told it.
local function held_by_slot()
  local job2, attempt2 = string.match(redis.call('HGET', key('slots'), slot) or '', '^(.+) (%d+)$')
  if not job2 then return nil end
  local run2 = run_of(job2)
  if redis.call('HGET', of_run(run2, 'holders'), job2) ~= slot .. ' ' .. attempt2 then return nil end
  return {job2, slot, attempt2, redis.call('HGET', of_run(run2, 'prompts'), group_of(job2))}
end

local receipt = settle()
if receipt == 'duplicate' and ARGV[9] ~= '' then
  return {receipt, unpack(held_by_slot() or {})}
end
if not frees then return {receipt} end
local leased = receipt == 'accepted' and ARGV[9] ~= '' and may_be_offered(slot)
  and lease_next(slot, tonumber(ARGV[9]))
if not leased then
  free_slot(slot)
  return {receipt}
end
return {receipt, unpack(leased)}
