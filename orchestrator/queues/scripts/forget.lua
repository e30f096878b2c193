-- Remove a closed run and all its keys, whose memory Redis frees in the background.
-- ARGV: prefix, run. Returns 1, 0 if it is not closed or has jobs that did not end yet, or -1 if
-- there is no such run.
local KEPT = {
  'settings', 'sampler', 'config', 'dead', 'dead_prompts', 'holders', 'events', 'last_report', 'counts',
  'news', 'settled', 'trainer', 'claims',
}
local run = ARGV[2]
if redis.call('SISMEMBER', key('runs'), run) == 0 then return -1 end
local config = of_run(run, 'config')
local left = queued_jobs(run, ALL) + redis.call('HLEN', of_run(run, 'holders'))
if redis.call('HGET', config, 'closed') ~= '1' or left > 0 then return 0 end
if redis.call('HEXISTS', config, 'sweeping') == 1 then return 0 end
withhold(run)
forget_tasks(run)
forget_keys(run, SAMPLED_FROM)
forget_keys(run, KEPT)
redis.call('SREM', key('runs'), run)
redis.call('ZREM', key('closed'), run)
redis.call('HDEL', key('set_aside'), run)
redis.call('LREM', key('events'), 0, run)
return 1
