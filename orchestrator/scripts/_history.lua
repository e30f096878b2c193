-- What became of a job's attempts, for people, and when a job has had enough of them.

-- Note how an attempt ended that was not accepted: lost, failed, cancelled, stopped or given_back.
local function note(job, slot, attempt, outcome, reason)
  local run = run_of(job)
  local packed = redis.call('HGET', of_run(run, 'history'), job)
  local attempts = packed and cmsgpack.unpack(packed) or {}
  attempts[#attempts + 1] = {
    attempt = tonumber(attempt),
    server_id = server_of(slot),
    leased_at = tonumber(redis.call('HGET', of_run(run, 'times'), job) or '0'),
    ended_at = now(),
    outcome = outcome,
    reason = reason,
  }
  if #attempts > MOST_ATTEMPTS_KEPT then table.remove(attempts, 1) end
  redis.call('HSET', of_run(run, 'history'), job, cmsgpack.pack(attempts))
  redis.call('HDEL', of_run(run, 'times'), job)
end

-- Whether the job was lost with so many different servers that it is to blame.
-- A loss with a server that it was lost with before is an ordinary failure instead.
local function lost_once_too_often(job, server)
  local run = run_of(job)
  local servers = redis.call('HGET', of_run(run, 'lost'), job) or ' '
  if string.find(servers, ' ' .. server .. ' ', 1, true) then return nil end
  servers = servers .. server .. ' '
  redis.call('HSET', of_run(run, 'lost'), job, servers)
  local _, count_of_servers = string.gsub(servers, '%S+', '')
  return count_of_servers >= MOST_SERVERS_LOST
end

local function bury(job, reason)
  local run = run_of(job)
  count(run, 'dead', 1)
  local dead = of_run(run, 'dead')
  if redis.call('HLEN', dead) < MOST_DEAD_KEPT then
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
