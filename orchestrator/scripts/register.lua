-- A server starts: all its slots are free, or one if it was in quarantine. It knows nothing of what
-- it held before: that is requeued and charged. One that repeats itself, because it did not hear
-- the answer, is left as it is. ARGV: prefix, server, message, slots, 1 if it names its incarnation
local server, size = ARGV[2], tonumber(ARGV[4])
if ARGV[5] == '1' and redis.call('HGET', key('servers'), server) == ARGV[3] then
  redis.call('ZADD', key('seen'), now(), server)
  return
end
local trouble = redis.call('HGET', key('quarantine'), server)
for _, lost in ipairs(forget_server(server)) do
  local job, slot, attempt = unpack(lost)
  charge(job, slot, attempt, 'lost', 'agent server ' .. server .. ' restarted while it ran the job')
end
redis.call('HSET', key('servers'), server, ARGV[3])
redis.call('HSET', key('sizes'), server, size)
redis.call('ZADD', key('seen'), now(), server)
if trouble then
  redis.call('HSET', key('quarantine'), server, trouble)
  redis.call('HSET', key('held'), server, 'probation ' .. server .. '#0')
end
for index = 0, size - 1 do
  free_slot(server .. '#' .. index)
end
for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  wake(of_run(run, 'news'))
end
