-- Take no more prompts, and let the sampler hear of nothing but the end: what it has not heard of
-- yet goes with the run, and counts as concluded, so that a conclusion in progress is refused.
-- ARGV: prefix, run, event, the trainer's epoch or '' of an operator
-- Returns 1, or 0 if another trainer has taken the run over, or there is no such run.
local run = ARGV[2]
if not is_known(run) then return 0 end
if is_superseded(run, ARGV[4]) then return 0 end
local config, events = of_run(run, 'config'), of_run(run, 'events')
if redis.call('HGET', config, 'closed') == '1' then return 1 end
redis.call('HSET', config, 'closed', '1')
redis.call('ZADD', key('closed'), now(), run)
redis.call('HINCRBY', config, 'concluded', redis.call('LLEN', events))
redis.call('UNLINK', events)
redis.call('RPUSH', events, ARGV[3])
redis.call('RPUSH', key('events'), run)
return 1
