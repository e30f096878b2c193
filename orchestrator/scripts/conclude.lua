-- Remove the oldest event and store what the sampler made of it. ARGV: prefix, run, sampler state
local run = ARGV[2]
redis.call('LPOP', of_run(run, 'events'))
redis.call('SET', of_run(run, 'sampler'), ARGV[3])
wake(of_run(run, 'news'))
