-- Attempts ended. ARGV: prefix, lease_seconds, then for each, flattened:
-- job, slot, attempt, outcome, result, reward, error, weight version of the oldest token or '',
-- seconds on the slot as its server measured them, or '', and what a failure is laid at: 'server' or
-- 'row'.
-- With lease_seconds, not '', the slot of a completed job may take its next job at once.
-- Returns for each {receipt} or {receipt, job, slot, attempt, prompt}; the receipt is 'accepted',
-- 'duplicate', 'requeued', 'dead' or 'stale'.
local lease_seconds = tonumber(ARGV[2])
local FIELDS = 10

-- By run, what is to be written of the results that were accepted: together, before anything else
-- is that may depend on it.
local accepted, ended = {}, {}
local seconds_spent = 0

local function accept(run, job, slot, attempt, result, reward, version, measured)
  accepted[run] = accepted[run] or {jobs = 0, results = {}, receipts = {}, times = {}, events = {}, rewards = 0}
  local new = accepted[run]
  local leased_at, began_under, seconds = time_spent(job, tonumber(measured))
  seconds_spent = seconds_spent + seconds
  server_succeeded(server_of(slot))
  new.rewards = new.rewards + tonumber(reward)
  new.jobs = new.jobs + 1
  table.insert(ended, job)
  for name, value in pairs({
    results = result,
    receipts = attempt .. ' ' .. slot .. ' ' .. reward,
    times = string.format('%.3f %.3f', leased_at, now()),
  }) do
    table.insert(new[name], job)
    table.insert(new[name], value)
  end
  table.insert(new.events, {
    type = 'ResultAccepted',
    job_id = job,
    reward = tonumber(reward),
    weight_version = tonumber(version) or began_under,
    seconds = seconds,
  })
end

local function write_accepted()
  call_with('ZREM', key('leases'), ended)
  ended = {}
  for run, new in pairs(accepted) do
    for _, name in ipairs({'results', 'receipts', 'times'}) do
      call_with('HSET', of_run(run, name), new[name])
    end
    count(run, 'accepted', new.jobs)
    redis.call('HINCRBYFLOAT', of_run(run, 'counts'), 'rewards_sum', string.format('%.17g', new.rewards))
    add_events(run, new.events)
  end
  accepted = {}
end

local function settle(job, slot, attempt, outcome, result, reward, reason, version, measured, blame)
  local run = run_of(job)
  if redis.call('HGET', of_run(run, 'holders'), job) ~= slot .. ' ' .. attempt then
    write_accepted()
    local receipt = redis.call('HGET', of_run(run, 'receipts'), job) or ''
    if string.match(receipt, '^%S+') == attempt then return 'duplicate' end
    -- One that was told to stop says so, too late by design; and a stranger's run has no counters.
    if outcome ~= 'cancelled' and redis.call('SISMEMBER', key('runs'), run) == 1 then
      count(run, 'results_refused', 1)
    end
    return 'stale'
  end
  if outcome == 'completed' then
    hold_more(run, -1)
    redis.call('HDEL', of_run(run, 'holders'), job)
    accept(run, job, slot, attempt, result, reward, version, measured)
    return 'accepted'
  end
  write_accepted()
  forget_lease(job)
  if outcome == 'cancelled' then
    note(job, slot, attempt, 'cancelled', reason)
    requeue(job)
    return 'requeued'
  end
  if blame == 'row' then return charge(job, slot, attempt, 'row_failed', reason) end
  server_failed(server_of(slot), job)
  return charge(job, slot, attempt, 'failed', reason)
end

-- What the slot runs now, for a server that did not hear the answer that told it.
local function held_by(slot)
  write_leases()
  local job, attempt = holder(slot, redis.call('HGET', key('slots'), slot))
  if not job then return nil end
  return {job, slot, attempt, redis.call('HGET', of_run(run_of(job), 'prompts'), group_of(job))}
end

local loads = {} -- by server, at the most: nothing here occupies a slot that was free

-- Whether an occupied slot may have another job: one that would wait for a slot that works only
-- while many wait, and none that the server has no room for.
local function may_go_on(slot)
  local server = server_of(slot)
  loads[server] = loads[server] or number('loads', server)
  if loads[server] <= working_slots(server) then return true end
  local load = number('loads', server)
  return load <= room(server) and many_jobs_wait(class_of(server))
end

-- Free the slot of an attempt that occupied it; returns the job that it takes at once, or nil.
local function pass_on(slot, receipt)
  if receipt == 'accepted' and lease_seconds and may_be_offered(slot) and may_go_on(slot) then
    local leased = lease_next(slot, lease_seconds)
    if leased then return leased end
  end
  free_slot(slot)
end

local function report(job, slot, attempt, ...)
  local occupied = redis.call('HGET', key('slots'), slot) == job .. ' ' .. attempt
  local receipt = settle(job, slot, attempt, ...)
  local following
  if receipt == 'duplicate' and lease_seconds then
    following = held_by(slot)
  elseif occupied then
    following = pass_on(slot, receipt)
  end
  return {receipt, unpack(following or {})}
end

local receipts = {}
for i = 3, #ARGV, FIELDS do
  receipts[#receipts + 1] = report(unpack(ARGV, i, i + FIELDS - 1))
end
write_accepted()
if seconds_spent > 0 then book(seconds_spent) end
finish_leasing()
return receipts
