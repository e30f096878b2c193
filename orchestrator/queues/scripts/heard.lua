-- The trainer of a run lives or, with leaving (0 or 1), goes. ARGV: prefix, run, epoch, leaving
-- Returns 1, or 0 if it is not the run's trainer any more. One that went stays gone until a trainer
-- takes the run over: a sign of life may have been on its way.
local run = ARGV[2]
local trainer = of_run(run, 'trainer')
if redis.call('HGET', trainer, 'epoch') ~= ARGV[3] then return 0 end
redis.call('HSET', trainer, 'seen', now())
if ARGV[4] == '1' then redis.call('HSET', trainer, 'left', '1') end
return 1
