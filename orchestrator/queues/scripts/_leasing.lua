-- Which job a slot gets, and its lease.

-- Whether the job was lost with this server, or its row failed there, while another that can run it,
-- and takes jobs, has not tried it yet. It waits for the other no longer than a lease: its slots may
-- be busy for hours.
local function must_run_elsewhere(run, kind, job, server, lease_seconds)
  if not any_is_troubled(run) then return false end
  local lost = redis.call('HGET', of_run(run, 'lost'), job)
  local row_failed = redis.call('HGET', of_run(run, 'row_failed'), job) or ''
  local tried = lost and lost .. (string.match(row_failed, ' .*') or '') or row_failed
  if not string.find(tried, ' ' .. server .. ' ', 1, true) then return false end
  if now() > tonumber(string.match(tried, '^%S+')) + lease_seconds then return false end
  for _, other in ipairs(redis.call('HKEYS', key('servers'))) do
    local is_new = not string.find(tried, ' ' .. other .. ' ', 1, true)
    if is_new and redis.call('HEXISTS', key('held'), other) == 0 and server_can_run(other, kind) then
      return true
    end
  end
  return false
end

-- The run's first job of this kind that the server may have, taken off its queue, or nil.
local function job_of_kind(run, kind, server, lease_seconds)
  local tasks, passed_over = tasks_of(run, kind), {}
  local job = redis.call('LPOP', tasks)
  while job and must_run_elsewhere(run, kind, job, server, lease_seconds) do
    passed_over[#passed_over + 1] = job
    job = redis.call('LPOP', tasks)
  end
  for i = #passed_over, 1, -1 do
    redis.call('LPUSH', tasks, passed_over[i])
  end
  if job then note_taken(run, kind, job) end
  return job
end

-- The run's first job that the server may have, taken off the task queue, or nil. Of several kinds,
-- that one comes first whose group was fed first.
local function job_for(run, server, lease_seconds)
  local kinds, index = of_run(run, 'next:' .. class_of(server)), 0
  local kind = redis.call('ZRANGE', kinds, 0, 0)[1]
  while kind do
    local job = job_of_kind(run, kind, server, lease_seconds)
    if job then return job end
    index = index + 1
    kind = redis.call('ZRANGE', kinds, index, index)[1]
  end
end

-- The next job in turn for the server with this model, or nil.
local function next_job(server, lease_seconds, model)
  local waiting, passed_over = key('waiting:' .. class_of(server)), 0
  local run = redis.call('ZRANGE', waiting, 0, 0)[1]
  while run do
    local job = fits(run, model) and slots_left(run) > 0 and job_for(run, server, lease_seconds)
    if job then
      take_turn(run, class_of(server))
      return job, run
    end
    if queued_jobs(run, class_of(server)) == 0 then
      redis.call('ZREM', waiting, run)
    else
      passed_over = passed_over + 1
    end
    run = redis.call('ZRANGE', waiting, passed_over, passed_over)[1]
  end
end

-- Now, but no two leases at the same microsecond: what is stopped together waits in their order.
local leases_now = 0

local function moment_of_lease()
  leases_now = leases_now + 1
  return now() + leases_now / 1e6
end

local prompts = {} -- of the groups whose jobs are leased in this script

local function prompt_of(job, run)
  local group = group_of(job)
  local known = run .. '/' .. group
  prompts[known] = prompts[known] or redis.call('HGET', of_run(run, 'prompts'), group)
  return prompts[known]
end

-- By run, what is to be written of the leases that this script made: as many as are made together,
-- a command for each of them would be most of what they cost.
local leased, expiries = {}, {}
local shortened = {} -- runs whose task queue has fewer jobs now

local function write_leases()
  for run, new in pairs(leased) do
    call_with('HSET', of_run(run, 'holders'), new.holders)
    call_with('HSET', of_run(run, 'times'), new.times)
  end
  call_with('ZADD', key('leases'), expiries)
  leased, expiries = {}, {}
end

-- To be called once all is leased: wakes who feeds the runs, if they run dry.
local function finish_leasing()
  write_leases()
  write_shares()
  for run in pairs(shortened) do wake_if_prompts_are_wanted(run) end
end

local function note_lease(run, job, slot, attempt, lease_seconds)
  leased[run] = leased[run] or {holders = {}, times = {}}
  local holders, times = leased[run].holders, leased[run].times
  holders[#holders + 1], holders[#holders + 2] = job, slot .. ' ' .. attempt
  times[#times + 1] = job
  times[#times + 1] = string.format('%.6f %d', moment_of_lease(), weights())
  expiries[#expiries + 1], expiries[#expiries + 2] = now() + lease_seconds, job
  shortened[run] = true
  hold_more(run, 1)
end

-- Lease the next job in turn to a slot that is on no list and counts as occupied.
-- Returns {job, slot, attempt, prompt}, or nil if no job waits that its server may have. Who leases
-- calls finish_leasing in the end.
local function lease_next(slot, lease_seconds)
  local model = all_serve_published() and model_with(server_of(slot))
  if not model then return nil end
  local job, run = next_job(server_of(slot), lease_seconds, model)
  if not job then return nil end
  keep_model(run, model)
  local attempt = redis.call('HINCRBY', of_run(run, 'attempts'), job, 1)
  redis.call('HSET', key('slots'), slot, job .. ' ' .. attempt)
  note_lease(run, job, slot, attempt, lease_seconds)
  return {job, slot, attempt, prompt_of(job, run)}
end
