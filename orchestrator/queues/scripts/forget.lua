-- Remove a closed run and all its keys, whose memory Redis frees in the background.
-- ARGV: prefix, run, most jobs that are stopped for it, if the end of its jobs is not waited for
-- Returns 1, 0 if it is not closed or has jobs that did not end yet, or -1 if there is no such run.
local KEPT = {
  'settings', 'sampler', 'config', 'dead', 'dead_prompts', 'holders', 'events', 'last_report', 'counts',
  'news', 'settled', 'trainer', 'claims',
}
local run, stopped = ARGV[2], tonumber(ARGV[3])
if not is_known(run) then
  redis.call('ZREM', key('closed'), run)
  redis.call('HDEL', key('set_aside'), run)
  return -1
end
local config, holders = of_run(run, 'config'), of_run(run, 'holders')
if redis.call('HGET', config, 'closed') ~= '1' then return 0 end
if stopped then
  for _, job in ipairs(redis.call('HRANDFIELD', holders, stopped)) do
    stop_attempt(job, 'the run was closed')
  end
elseif queued_jobs(run, ALL) > 0 or redis.call('HEXISTS', config, 'sweeping') == 1 then
  return 0
end
if redis.call('EXISTS', holders) == 1 then return 0 end
withhold(run)
forget_tasks(run)
forget_keys(run, SAMPLED_FROM)
forget_keys(run, KEPT)
redis.call('SREM', key('runs'), run)
redis.call('ZREM', key('closed'), run)
for _, name in ipairs({'set_aside', 'shares'}) do redis.call('HDEL', key(name), run) end
redis.call('LREM', key('events'), 0, run)
return 1
