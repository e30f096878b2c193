-- Create a run, held. ARGV: prefix, run, settings, sampler state, max_failures,
-- trainer_silent_seconds, look_ahead_jobs
-- Returns the stored settings: the caller compares them.
local run = ARGV[2]
if redis.call('SADD', key('runs'), run) == 1 then
  redis.call('SETNX', key('version'), STATE_VERSION) -- Redis may have lost all it had since the start
  redis.call('SET', of_run(run, 'settings'), ARGV[3])
  redis.call('SET', of_run(run, 'sampler'), ARGV[4])
  redis.call('HSET', of_run(run, 'config'), 'open', '0', 'max_failures', ARGV[5],
    'trainer_silent', ARGV[6], 'look_ahead', ARGV[7])
  set_share(run, 1)
end
return redis.call('GET', of_run(run, 'settings'))
