-- Which places stand on the server-availability queue, which is a list for each class of servers. A
-- server has a place for each of its slots and for each job that it takes ahead, to start it the
-- moment a slot is free. As many of its places are on `free` as it has slots to work on; the rest is
-- `spare` and leased only while as many jobs wait as could be ahead on all servers that might have
-- them, so that no job waits on one server while another has nothing.
-- Nothing is offered of a server that is quarantined or drained, one place on probation, and as many
-- places less as its slots are lost or lent: what is kept off the lists is suspended, and the heartbeats of
-- its server offer it again.
-- Everywhere else a place is called slot: what has a lease cannot tell them apart.

-- A slot is free: note how long that took if its attempt had been stopped.
local function reclaimed(slot)
  local since = redis.call('HGET', key('reclaims'), slot)
  if not since then return end
  redis.call('HDEL', key('reclaims'), slot)
  local totals, server, seconds = key('reclaimed'), server_of(slot), now() - tonumber(since)
  redis.call('HINCRBY', totals, server .. ' count', 1)
  redis.call('HINCRBYFLOAT', totals, server .. ' seconds', seconds)
  if seconds > tonumber(redis.call('HGET', totals, server .. ' worst') or '0') then
    redis.call('HSET', totals, server .. ' worst', seconds)
  end
end

local function number(hash, server)
  return tonumber(redis.call('HGET', key(hash), server) or '0')
end

-- Slots of the server that are lost or lent.
local function withheld_slots(server)
  local lost = redis.call('HGET', key('lost_slots'), server) or '0'
  return tonumber(string.match(lost, '^%d+')) + number('lent_slots', server)
end

local working = {}

-- Slots of the server that are for jobs. Scripts that change their number do so before they ask.
local function working_slots(server)
  if not working[server] then
    working[server] = number('sizes', server) - withheld_slots(server)
  end
  return working[server]
end

-- How many jobs the server can have: where no slot works, none waits for one.
local function room(server)
  if working_slots(server) == 0 then return 0 end
  return working_slots(server) + number('places', server) - number('sizes', server)
end

local trusted = {} -- servers of which nothing is suspended, nor has failed since we looked

-- Whether the slot may be offered now. The first one asked for when a quarantine is over, and its
-- server has room to work on a job, is the one on probation.
local function may_be_offered(slot)
  local server = server_of(slot)
  if trusted[server] then return true end
  local held = redis.call('HGET', key('held'), server)
  if not held or held == 'probation ' .. slot then return true end
  if held ~= 'quarantined' then return false end
  local let_back_at = string.match(redis.call('HGET', key('quarantine'), server), '^%S+')
  if now() < tonumber(let_back_at) then return false end
  if number('loads', server) >= working_slots(server) then return false end
  redis.call('HSET', key('held'), server, 'probation ' .. slot)
  return true
end

-- Nothing occupies the slot any more, and it is on no list.
local function vacate(slot)
  local state = redis.call('HGET', key('slots'), slot)
  if state and state ~= 'free' then redis.call('HINCRBY', key('loads'), server_of(slot), -1) end
  redis.call('HDEL', key('slots'), slot)
end

-- The number of places on each list, by its name.
local COUNTS = {free = 'offered', spare = 'spared'}

-- Put a vacant slot on the list where it belongs, if its server has room for it.
local function offer_slot(slot)
  local server = server_of(slot)
  local list, taken = 'free', number('offered', server) + number('loads', server)
  if taken >= working_slots(server) then
    if taken + number('spared', server) >= room(server) then return end
    list = 'spare'
  end
  redis.call('HSET', key('slots'), slot, 'free')
  redis.call('HINCRBY', key(COUNTS[list]), server, 1)
  redis.call('RPUSH', key(list .. ':' .. class_of(server)), slot)
  wake(key('work'))
end

local function free_slot(slot)
  reclaimed(slot)
  vacate(slot)
  if may_be_offered(slot) then offer_slot(slot) end
end

local aheads = {}

-- Places for jobs ahead on all servers that might have a job of this class.
local function places_ahead(class)
  if not aheads[class] then
    aheads[class] = 0
    for _, other in ipairs(all_classes()) do
      if overlap(class, other) then aheads[class] = aheads[class] + number('ahead', other) end
    end
  end
  return aheads[class]
end

-- Whether as many jobs wait for the class as there are places for jobs ahead.
local function many_jobs_wait(class)
  local jobs = 0
  for _, run in ipairs(redis.call('ZRANGE', key('waiting:' .. class), 0, -1)) do
    jobs = jobs + math.min(queued_jobs(run, class), slots_left(run))
  end
  return jobs >= places_ahead(class)
end

-- Take the slot of this class that comes next off the list `free` or `spare`, or nil. It is put back
-- or its server occupied.
local function take_slot(class, list)
  local slots = key(list .. ':' .. class)
  if list == 'spare' and (redis.call('EXISTS', slots) == 0 or not many_jobs_wait(class)) then return nil end
  return redis.call('LPOP', slots) or nil
end

-- Put a slot that was taken back at the head of its list.
local function put_back(slot, list)
  redis.call('LPUSH', key(list .. ':' .. class_of(server_of(slot))), slot)
end

-- So many slots of the server, which were taken off this list, have a job each.
local function occupy(server, list, slots)
  redis.call('HINCRBY', key(COUNTS[list]), server, -slots)
  redis.call('HINCRBY', key('loads'), server, slots)
end

-- Take the free slots of a server off the lists.
local function withdraw(server)
  for name, counted in pairs(COUNTS) do
    local list, others = key(name .. ':' .. class_of(server)), {}
    for _, slot in ipairs(redis.call('LRANGE', list, 0, -1)) do
      if server_of(slot) == server then
        redis.call('HDEL', key('slots'), slot)
      else
        others[#others + 1] = slot
      end
    end
    redis.call('DEL', list)
    for _, slot in ipairs(others) do redis.call('RPUSH', list, slot) end
    redis.call('HDEL', key(counted), server)
  end
end

local function quarantine(server)
  local _, times = string.match(redis.call('HGET', key('quarantine'), server) or '0 0', '^(%S+) (%d+)$')
  local seconds = math.min(QUARANTINE_SECONDS * 2 ^ tonumber(times), MAX_QUARANTINE_SECONDS)
  local entry = string.format('%.3f %d', now() + seconds, tonumber(times) + 1)
  redis.call('HSET', key('quarantine'), server, entry)
  redis.call('HSET', key('held'), server, 'quarantined')
  withdraw(server)
end

-- Enough failures in a row, or one on probation, put a server into quarantine; never more than half
-- of the servers, for then it is not the servers.
local function distrust(server, enough)
  local held = redis.call('HGET', key('held'), server)
  if held then
    if string.find(held, '^probation') then quarantine(server) end
  elseif enough
    and (redis.call('HLEN', key('quarantine')) + 1) * 2 <= redis.call('HLEN', key('servers')) then
    quarantine(server)
  end
end

-- An attempt failed on the server: what counts are different jobs.
local function server_failed(server, job)
  trusted[server] = nil
  local jobs = redis.call('HGET', key('failing'), server) or ' '
  local _, different = string.gsub(jobs, '%S+', '')
  if different < QUARANTINE_AFTER and not string.find(jobs, ' ' .. job .. ' ', 1, true) then
    redis.call('HSET', key('failing'), server, jobs .. job .. ' ')
    different = different + 1
  end
  distrust(server, different >= QUARANTINE_AFTER)
end

-- An attempt succeeded on the server: it is trusted again, if it was on probation.
local function server_succeeded(server)
  if trusted[server] then return end
  redis.call('HDEL', key('failing'), server)
  local held = redis.call('HGET', key('held'), server)
  trusted[server] = not held
  if held and string.find(held, '^probation') then
    redis.call('HDEL', key('held'), server)
    redis.call('HDEL', key('quarantine'), server)
    redis.call('HDEL', key('unreached'), server)
  end
end

-- The job and the attempt in a slot's entry of `slots`, if they hold their lease still.
local function holder(slot, entry)
  local job, attempt = string.match(entry or '', '^(.+) (%d+)$')
  if job and redis.call('HGET', of_run(run_of(job), 'holders'), job) == slot .. ' ' .. attempt then
    return job, attempt
  end
end

-- Forget all slots of a server. Returns the {job, slot, attempt} that it held.
local function forget_server(server)
  local places = number('places', server)
  local lost = {}
  for index = 0, places - 1 do
    local slot = slot_of(server, index)
    local job, attempt = holder(slot, redis.call('HGET', key('slots'), slot))
    if job then
      forget_lease(job)
      lost[#lost + 1] = {job, slot, attempt}
    end
    redis.call('HDEL', key('slots'), slot)
    redis.call('HDEL', key('reclaims'), slot)
  end
  if places > 0 then
    withdraw(server)
    local slots = number('sizes', server)
    leave_class(class_of(server), slots, places - slots)
  end
  class_by_server[server] = nil
  local kept = {
    'servers', 'secrets', 'class', 'models', 'sizes', 'places', 'loads', 'held', 'quarantine', 'failing',
    'unreached', 'lost_slots', 'lent_slots',
  }
  for _, name in ipairs(kept) do
    redis.call('HDEL', key(name), server)
  end
  for _, name in ipairs({' count', ' seconds', ' worst'}) do
    redis.call('HDEL', key('reclaimed'), server .. name)
  end
  redis.call('ZREM', key('seen'), server)
  return lost
end
