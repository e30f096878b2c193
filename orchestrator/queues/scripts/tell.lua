-- Put what a trainer or an operator wants in the order of a run's events.
-- ARGV: prefix, run, event, the trainer's epoch or '' of an operator
-- Returns 1, or 0 if another trainer has taken the run over, or there is no such run.
if not is_known(ARGV[2]) then return 0 end
if is_superseded(ARGV[2], ARGV[4]) then return 0 end
redis.call('RPUSH', of_run(ARGV[2], 'events'), ARGV[3])
redis.call('RPUSH', key('events'), ARGV[2])
return 1
