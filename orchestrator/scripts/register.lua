-- A server starts: all its slots are free. It knows nothing of what it held before: that is
-- requeued and charged. ARGV: prefix, server, message, slots
local server, size = ARGV[2], tonumber(ARGV[4])
for _, job in ipairs(forget_server(server)) do
  charge(job, 'agent server ' .. server .. ' restarted while it ran the job')
end
redis.call('HSET', key('servers'), server, ARGV[3])
redis.call('HSET', key('sizes'), server, size)
redis.call('ZADD', key('seen'), now(), server)
for index = 0, size - 1 do
  free_slot(server .. '#' .. index)
end
for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  wake(of_run(run, 'news'))
end
