-- A trainer takes a run over. ARGV: prefix, run, trainer id, host, pid
-- Returns its epoch, or nil if there is no such run. One that repeats itself, because it did not
-- hear the answer, is told its epoch again, also when another took the run over since.
local run, id = ARGV[2], ARGV[3]
if redis.call('SISMEMBER', key('runs'), run) == 0 then return nil end
local claimed = redis.call('HGET', of_run(run, 'claims'), id)
if claimed then return tonumber(claimed) end
local trainer = of_run(run, 'trainer')
local epoch = redis.call('HINCRBY', trainer, 'epoch', 1)
redis.call('HSET', of_run(run, 'claims'), id, epoch)
redis.call('HSET', trainer, 'host', ARGV[4], 'pid', ARGV[5], 'since', now(), 'seen', now())
redis.call('HDEL', trainer, 'left')
wake(of_run(run, 'news'))
return epoch
