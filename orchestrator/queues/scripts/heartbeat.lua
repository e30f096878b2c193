-- A server is alive and runs these leases.
-- ARGV: prefix, server, lease_seconds, how many of its slots are lost, why, how many are lent, then
-- "job slot attempt" triples flattened
-- Returns {0} if the server is unknown, else {1, {index of each triple to stop...}, {of each that
-- should stand still...}, weight version published last} (indices from 0); first 2 instead of 1 if
-- the server is draining and nothing occupies its slots.
local server, lease_seconds = ARGV[2], tonumber(ARGV[3])
if redis.call('HEXISTS', key('servers'), server) == 0 then return {0} end
local at, FIRST_LEASE = now(), 7
redis.call('ZADD', key('seen'), at, server)
local stop, stand, running, any_parked = {}, {}, {}, {}

local function is_parked(job)
  local parked = of_run(run_of(job), 'parked')
  if any_parked[parked] == nil then any_parked[parked] = redis.call('EXISTS', parked) == 1 end
  return any_parked[parked] and redis.call('SISMEMBER', parked, job) == 1
end

local function keep(name, value)
  if value then
    redis.call('HSET', key(name), server, value)
  else
    redis.call('HDEL', key(name), server)
  end
end

local function note_withheld(size, before)
  local lost = math.min(tonumber(ARGV[4]), size)
  local lent = math.min(tonumber(ARGV[6]), size - lost)
  keep('lost_slots', lost > 0 and string.format('%d %s', lost, ARGV[5]))
  keep('lent_slots', lent > 0 and lent)
  -- What is free of it is offered anew below, as far as there is room.
  if lost + lent ~= before then withdraw(server) end
end

note_withheld(number('sizes', server), withheld_slots(server))
for i = FIRST_LEASE, #ARGV, 3 do
  local job, slot, attempt = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  running[slot] = job .. ' ' .. attempt
  if redis.call('HGET', of_run(run_of(job), 'holders'), job) == slot .. ' ' .. attempt then
    redis.call('ZADD', key('leases'), at + lease_seconds, job)
    if is_parked(job) then stand[#stand + 1] = (i - FIRST_LEASE) / 3 end
  else
    stop[#stop + 1] = (i - FIRST_LEASE) / 3
  end
end
-- Bring back slots that were suspended, or whose attempt ended without a report.
local occupied = 0
for index = 0, number('places', server) - 1 do
  local slot = slot_of(server, index)
  local entry = redis.call('HGET', key('slots'), slot)
  if running[slot] or holder(slot, entry) then
    occupied = occupied + 1
  elseif entry ~= 'free' then
    free_slot(slot)
  end
end
local drained = occupied == 0 and redis.call('HGET', key('held'), server) == 'draining'
return {drained and 2 or 1, stop, stand, (published())}
