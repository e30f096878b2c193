-- What became of a job's attempts, for people, and when a job has had enough of them.

-- Which attempts took a slot's time in vain; one that was given back never ran.
local ENDINGS = {lost = 'failed', failed = 'failed', row_failed = 'failed', cancelled = 'stopped', stopped = 'stopped'}

-- Of what is kept in `times` of a leased job: when it was leased, the weight version then, how many
-- seconds it has stood parked before, and since when it is parked, or nil.
local function read_times(times)
  times = times or tostring(now())
  local leased_at, version, stood, since = string.match(times, '^(%S+) ?(%S*) ?(%S*) ?(%S*)$')
  return tonumber(leased_at), tonumber(version) or 0, tonumber(stood) or 0, tonumber(since)
end

local function times_of(job)
  return read_times(redis.call('HGET', of_run(run_of(job), 'times'), job))
end

-- These jobs of a run, in the order in which they were leased.
local function oldest_first(run, jobs)
  local leased_at = {}
  for i, times in ipairs(values_of(of_run(run, 'times'), jobs)) do leased_at[jobs[i]] = read_times(times) end
  table.sort(jobs, function(one, other) return leased_at[one] < leased_at[other] end)
  return jobs
end

-- An attempt is over, and its job parked no more. Returns when it was leased, the weight version
-- then, and its seconds on the slot, measured by its server or here, which are to be booked.
local function time_spent(job, measured)
  local leased_at, version, stood, since = times_of(job)
  local seconds = measured or math.max(0, (since or now()) - leased_at - stood)
  if since then redis.call('SREM', of_run(run_of(job), 'parked'), job) end
  return leased_at, version, seconds
end

local function book(seconds)
  redis.call('INCRBYFLOAT', key('ran'), string.format('%.3f', seconds))
end

-- Seconds that attempts have spent on their slots till now, also those that still run.
local function ran_till_now()
  local seconds, jobs_of = tonumber(redis.call('GET', key('ran')) or '0'), {}
  for _, job in ipairs(redis.call('ZRANGE', key('leases'), 0, -1)) do
    local run = run_of(job)
    jobs_of[run] = jobs_of[run] or {}
    table.insert(jobs_of[run], job)
  end
  for run, jobs in pairs(jobs_of) do
    for _, times in ipairs(values_of(of_run(run, 'times'), jobs)) do
      local leased_at, _, stood, since = read_times(times)
      seconds = seconds + math.max(0, (since or now()) - leased_at - stood)
    end
  end
  return seconds
end

-- Keep for people how an attempt ended.
local function remember(job, slot, attempt, leased_at, outcome, reason)
  local run = run_of(job)
  local packed = redis.call('HGET', of_run(run, 'history'), job)
  local attempts = packed and cmsgpack.unpack(packed) or {}
  attempts[#attempts + 1] = {
    attempt = tonumber(attempt),
    server_id = server_of(slot),
    leased_at = leased_at,
    ended_at = now(),
    outcome = outcome,
    reason = reason,
  }
  if #attempts > MAX_ATTEMPTS_KEPT then table.remove(attempts, 1) end
  redis.call('HSET', of_run(run, 'history'), job, cmsgpack.pack(attempts))
  redis.call('HDEL', of_run(run, 'times'), job)
end

-- Note how an attempt ended that was not accepted: lost, failed, row_failed, cancelled,
-- stopped or given_back.
local function note(job, slot, attempt, outcome, reason)
  local leased_at, _, seconds = time_spent(job)
  book(seconds)
  remember(job, slot, attempt, leased_at, outcome, reason)
  local ending = ENDINGS[outcome]
  if ending then
    local event = {type = 'AttemptEnded', job_id = job, seconds = seconds, ending = ending}
    add_event(run_of(job), event)
  end
end

-- Stop the job's attempt, whose server is to be told; returns its slot and number, or nil.
local function stop_attempt(job, reason)
  local slot, attempt = end_lease(job)
  if not slot then return nil end
  note(job, slot, attempt, 'stopped', reason)
  redis.call('HSET', key('reclaims'), slot, string.format('%.6f', now()))
  count(run_of(job), 'attempts_stopped', 1)
  return slot, attempt
end

-- Runs of which a job was lost or its row failed, as far as this script knows.
local troubled = {}

local function any_is_troubled(run)
  if troubled[run] == nil then
    troubled[run] = redis.call('EXISTS', of_run(run, 'lost'), of_run(run, 'row_failed')) > 0
  end
  return troubled[run]
end

-- Whether the job was lost with so many different servers that it is to blame.
-- A loss with a server that it was lost with before is an ordinary failure instead.
local function lost_once_too_often(job, server)
  local run = run_of(job)
  troubled[run] = true
  local lost = redis.call('HGET', of_run(run, 'lost'), job)
  local servers = lost and string.match(lost, ' .*') or ' '
  local again = string.find(servers, ' ' .. server .. ' ', 1, true)
  if not again then servers = servers .. server .. ' ' end
  redis.call('HSET', of_run(run, 'lost'), job, string.format('%.3f', now()) .. servers)
  if again then return nil end
  local _, count_of_servers = string.gsub(servers, '%S+', '')
  return count_of_servers >= MAX_SERVERS_LOST
end

-- Whether the job's row failed before. It may be luck once: another server is to try it.
local function row_failed_again(job, server)
  local servers = string.format('%.3f %s ', now(), server)
  troubled[run_of(job)] = true
  return redis.call('HSETNX', of_run(run_of(job), 'row_failed'), job, servers) == 0
end

local function bury(job, reason)
  local run = run_of(job)
  count(run, 'dead', 1)
  local dead = of_run(run, 'dead')
  if redis.call('HLEN', dead) < MAX_DEAD_KEPT then
    local prompt = redis.call('HGET', of_run(run, 'prompts'), group_of(job))
    redis.call('HSET', dead, job, cmsgpack.pack({died_at = now(), reason = reason}))
    redis.call('HSET', of_run(run, 'dead_prompts'), job, prompt)
  end
  add_event(run, {type = 'JobDied', job_id = job, reason = reason})
end

-- Charge an attempt that was lost or failed: requeue the job or, at the limit, bury it.
local function charge(job, slot, attempt, outcome, reason)
  local run = run_of(job)
  count(run, 'attempts_failed', 1)
  note(job, slot, attempt, outcome, reason)
  local enough
  if outcome == 'lost' then enough = lost_once_too_often(job, server_of(slot)) end
  if outcome == 'row_failed' then enough = row_failed_again(job, server_of(slot)) end
  if enough == nil then
    local most = tonumber(redis.call('HGET', of_run(run, 'config'), 'max_failures'))
    enough = redis.call('HINCRBY', of_run(run, 'failures'), job, 1) >= most
  end
  if not enough then
    requeue(job)
    return 'requeued'
  end
  bury(job, reason)
  return 'dead'
end

-- An attempt was lost as most servers were: the job waits again and is not charged, unless that has
-- happened to it so often that it may have brought them down itself.
local function excuse(job, slot, attempt, reason)
  local run = run_of(job)
  if redis.call('HINCRBY', of_run(run, 'excused'), job, 1) > MAX_EXCUSED then
    return charge(job, slot, attempt, 'lost', reason)
  end
  note(job, slot, attempt, 'lost', reason .. '; not counted against the job')
  requeue(job)
end
