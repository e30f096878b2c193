-- Put what a trainer or an operator wants in the order of a run's events. ARGV: prefix, run, event
redis.call('RPUSH', of_run(ARGV[2], 'events'), ARGV[3])
redis.call('RPUSH', key('events'), ARGV[2])
