-- Make a prompt a group and queue its jobs. ARGV: prefix, run, group, prompt, job...
-- Returns 1, or 0 if this prompt was fed before.
local run, group = ARGV[2], ARGV[3]
if redis.call('SADD', of_run(run, 'fed'), group) == 0 then return 0 end
redis.call('HSET', of_run(run, 'prompts'), group, ARGV[4])
for i = 5, #ARGV do
  redis.call('RPUSH', of_run(run, 'tasks'), ARGV[i])
end
count(run, 'submitted', #ARGV - 4)
add_event(run, {type = 'PromptFed', group_id = group})
offer(run)
return 1
