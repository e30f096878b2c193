-- Shared by every script here; prepended to each. ARGV[1] is the key prefix, "rollyard:".
--
-- Keys, all under the prefix
--   runs               set    run ids
--   waiting            list   open runs with queued jobs, in turn
--   free               list   free slots "server#index": the server-availability queue
--   slots              hash   slot -> "free" or the "job attempt" that occupies it; absent: suspended
--   servers            hash   server id -> AgentServer
--   sizes              hash   server id -> number of slots
--   seen               zset   server ids by their last heartbeat, unix seconds
--   leases             zset   leased job ids by expiry, unix seconds
--   llm_nodes          hash   node id -> LLMNode
--   work, events       list   one mark: wakes the dispatcher; run ids: wakes the collector
-- under run:<run id>:
--   settings, sampler  string RunSettings, SamplerState
--   config             hash   open (0 or 1), max_failures, concluded (events so far)
--   fed                set    group ids ever fed
--   tasks              list   queued job ids, next one first: the task queue
--   prompts            hash   group id -> Prompt
--   attempts, failures hash   job id -> attempts leased, infrastructure failures
--   holders            hash   leased job id -> "slot attempt"
--   results            hash   job id -> accepted Result
--   receipts           hash   job id -> the attempt that was accepted
--   events             list   events not yet concluded, oldest first: the result queue
--   batches            hash   batch id -> group ids
--   counts             hash   submitted, accepted, dead, dropped, ...
--   news               list   one mark: wakes the trainer's wait
local prefix = ARGV[1]

local function key(name)
  return prefix .. name
end

local function of_run(run, name)
  return prefix .. 'run:' .. run .. ':' .. name
end

local function run_of(job)
  return string.match(job, '^[^/]+')
end

local function group_of(job)
  return string.match(job, '^[^/]+/([^/]+)/')
end

local function server_of(slot)
  return string.match(slot, '^(.+)#')
end

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end

local function count(run, name, by)
  redis.call('HINCRBY', of_run(run, 'counts'), name, by)
end

local function wake(list)
  if redis.call('LLEN', list) == 0 then
    redis.call('RPUSH', list, '1')
  end
end

-- An event has the fields of its class in orchestrator/events.py; `type` names the class.
local function add_event(run, event)
  redis.call('RPUSH', of_run(run, 'events'), cmsgpack.pack(event))
  redis.call('RPUSH', key('events'), run)
end

-- Let the run take part in dispatch if it may.
local function offer(run)
  if redis.call('HGET', of_run(run, 'config'), 'open') ~= '1' then return end
  if redis.call('LLEN', of_run(run, 'tasks')) == 0 then return end
  if not redis.call('LPOS', key('waiting'), run) then
    redis.call('RPUSH', key('waiting'), run)
  end
  wake(key('work'))
end

local function free_slot(slot)
  redis.call('HSET', key('slots'), slot, 'free')
  redis.call('RPUSH', key('free'), slot)
  wake(key('work'))
end

-- End the job's lease; returns its slot and attempt, or nil if it was not leased.
local function end_lease(job)
  local holders = of_run(run_of(job), 'holders')
  local held = redis.call('HGET', holders, job)
  if not held then return nil end
  redis.call('HDEL', holders, job)
  redis.call('ZREM', key('leases'), job)
  local slot, attempt = string.match(held, '^(.+) (%d+)$')
  return slot, attempt
end

local function requeue(job)
  local run = run_of(job)
  redis.call('LPUSH', of_run(run, 'tasks'), job)
  offer(run)
end

-- Charge an infrastructure failure: requeue the job or, at the limit, bury it.
local function charge(job, reason)
  local run = run_of(job)
  count(run, 'attempts_failed', 1)
  local failures = redis.call('HINCRBY', of_run(run, 'failures'), job, 1)
  if failures < tonumber(redis.call('HGET', of_run(run, 'config'), 'max_failures')) then
    requeue(job)
    return 'requeued'
  end
  count(run, 'dead', 1)
  add_event(run, {type = 'JobDied', job_id = job, reason = reason})
  return 'dead'
end

-- Forget all slots of a server. Returns the jobs that it held.
local function forget_server(server)
  local size = tonumber(redis.call('HGET', key('sizes'), server) or '0')
  local held = {}
  for index = 0, size - 1 do
    local slot = server .. '#' .. index
    local state = redis.call('HGET', key('slots'), slot)
    if state and state ~= 'free' then
      local job, attempt = string.match(state, '^(.+) (%d+)$')
      if redis.call('HGET', of_run(run_of(job), 'holders'), job) == slot .. ' ' .. attempt then
        end_lease(job)
        held[#held + 1] = job
      end
    end
    redis.call('HDEL', key('slots'), slot)
  end
  if size > 0 then
    local others = {}
    for _, slot in ipairs(redis.call('LRANGE', key('free'), 0, -1)) do
      if server_of(slot) ~= server then others[#others + 1] = slot end
    end
    redis.call('DEL', key('free'))
    for _, slot in ipairs(others) do redis.call('RPUSH', key('free'), slot) end
  end
  redis.call('HDEL', key('servers'), server)
  redis.call('HDEL', key('sizes'), server)
  redis.call('ZREM', key('seen'), server)
  return held
end

-- Lease the next job in turn to a slot that is on no list. Runs take turns, a job each.
-- Returns {job, slot, attempt, prompt}, or nil if no job waits.
local function lease_next(slot, lease_seconds)
  while true do
    local run = redis.call('LPOP', key('waiting'))
    if not run then return nil end
    local job = redis.call('LPOP', of_run(run, 'tasks'))
    if job then
      local attempt = redis.call('HINCRBY', of_run(run, 'attempts'), job, 1)
      redis.call('HSET', of_run(run, 'holders'), job, slot .. ' ' .. attempt)
      redis.call('HSET', key('slots'), slot, job .. ' ' .. attempt)
      redis.call('ZADD', key('leases'), now() + lease_seconds, job)
      offer(run)
      wake(of_run(run, 'news'))
      return {job, slot, attempt, redis.call('HGET', of_run(run, 'prompts'), group_of(job))}
    end
  end
end
