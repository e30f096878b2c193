-- A server starts: all its slots are free, or one if it was in quarantine. It knows nothing of what
-- it held before: that is requeued and charged. ARGV: prefix, server, message, slots, jobs ahead
local server, size, ahead = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local trouble = redis.call('HGET', key('quarantine'), server)
for _, lost in ipairs(forget_server(server)) do
  local job, slot, attempt = unpack(lost)
  charge(job, slot, attempt, 'lost', 'agent server ' .. server .. ' restarted while it ran the job')
end
redis.call('HSET', key('servers'), server, ARGV[3])
redis.call('HSET', key('sizes'), server, size)
redis.call('HSET', key('places'), server, size + ahead)
redis.call('INCRBY', key('ahead'), ahead)
redis.call('ZADD', key('seen'), now(), server)
if trouble then
  redis.call('HSET', key('quarantine'), server, trouble)
  redis.call('HSET', key('held'), server, 'probation ' .. server .. '#0')
end
for index = 0, size + ahead - 1 do
  free_slot(server .. '#' .. index)
end
for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  wake(of_run(run, 'news'))
end
