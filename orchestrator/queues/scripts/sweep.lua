-- Stop leased jobs of a closed run, or, when none is left, forget what the run was sampled from.
-- Each call is short: jobs are stopped some at a time, and Redis frees what is forgotten meanwhile.
-- The dead stay with their history. ARGV: prefix, run, most jobs that are stopped
-- Returns {{'stop', job, slot, attempt}, ...}
local run, most = ARGV[2], tonumber(ARGV[3])
local config, stopped = of_run(run, 'config'), {}
if redis.call('HGET', config, 'sweeping') ~= '1' then return stopped end

local function forget_all_but_the_dead()
  count(run, 'dropped', queued_jobs(run, ALL))
  local history = of_run(run, 'history')
  local attempts = {}
  for _, job in ipairs(redis.call('HKEYS', of_run(run, 'dead'))) do
    attempts[job] = redis.call('HGET', history, job) or nil
  end
  forget_tasks(run)
  forget_keys(run, SAMPLED_FROM)
  for job, packed in pairs(attempts) do redis.call('HSET', history, job, packed) end
end

for _, job in ipairs(redis.call('HRANDFIELD', of_run(run, 'holders'), most)) do
  local slot, attempt = stop_attempt(job, 'the run was closed')
  count(run, 'dropped', 1)
  stopped[#stopped + 1] = {'stop', job, slot, attempt}
end
if redis.call('EXISTS', of_run(run, 'holders')) == 1 then
  redis.call('RPUSH', key('events'), run)
else
  forget_all_but_the_dead()
  redis.call('HDEL', config, 'sweeping')
end
wake(of_run(run, 'news'))
wake(of_run(run, 'settled'))
return stopped
