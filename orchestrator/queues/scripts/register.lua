-- A server starts: all its slots are free, or one if it was in quarantine. It knows nothing of what
-- it held before: that is requeued and charged. One that repeats itself, because it did not hear
-- the answer, is left as it is. One that showed a secret keeps its id from those that do not know
-- it, until it has been silent for a lease.
-- ARGV: prefix, server, message, slots, jobs ahead, 1 if it names its incarnation, secret or '',
-- lease_seconds, model, its abilities '[[environment...], [tag...]]', both sorted
-- Returns nothing, or as text for how many seconds the other that has this id has been silent.
local server, size, ahead = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local secret = redis.call('HGET', key('secrets'), server)
if secret and secret ~= ARGV[7] then
  local silent = now() - tonumber(redis.call('ZSCORE', key('seen'), server))
  if silent < tonumber(ARGV[8]) then return tostring(silent) end
end
if ARGV[6] == '1' and redis.call('HGET', key('servers'), server) == ARGV[3] then
  redis.call('ZADD', key('seen'), now(), server)
  return
end
local trouble = redis.call('HGET', key('quarantine'), server)
-- Before it leaves the class that it had: most often it is the same one.
local class = join_class(ARGV[10], size, ahead)
for _, lost in ipairs(forget_server(server)) do
  local job, slot, attempt = unpack(lost)
  charge(job, slot, attempt, 'lost', 'agent server ' .. server .. ' restarted while it ran the job')
end
redis.call('HSET', key('servers'), server, ARGV[3])
redis.call('HSET', key('class'), server, class)
redis.call('HSET', key('models'), server, ARGV[9])
if ARGV[7] ~= '' then redis.call('HSET', key('secrets'), server, ARGV[7]) end
redis.call('HSET', key('sizes'), server, size)
redis.call('HSET', key('places'), server, size + ahead)
redis.call('ZADD', key('seen'), now(), server)
if trouble then
  redis.call('HSET', key('quarantine'), server, trouble)
  redis.call('HSET', key('held'), server, 'probation ' .. slot_of(server, 0))
end
for index = 0, size + ahead - 1 do
  free_slot(slot_of(server, index))
end
for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  wake(of_run(run, 'news'))
end
