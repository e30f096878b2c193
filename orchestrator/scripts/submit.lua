-- Make a prompt a group and queue its jobs. ARGV: prefix, run, group, prompt, job...
-- Returns 1, or 0 if this prompt was fed before.
local run, group = ARGV[2], ARGV[3]
if redis.call('SADD', of_run(run, 'fed'), group) == 0 then return 0 end
queue_group(run, group, ARGV[4], 5)
return 1
