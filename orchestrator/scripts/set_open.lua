-- Let a run take part in dispatch, or hold it. ARGV: prefix, run, '1' or '0'
local run = ARGV[2]
redis.call('HSET', of_run(run, 'config'), 'open', ARGV[3])
if ARGV[3] == '1' then
  offer(run)
else
  redis.call('LREM', key('waiting'), 0, run)
end
