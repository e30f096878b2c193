-- Which places stand on the server-availability queue, which is a list for each class of servers. A
-- server has a place for each of its slots and for each job that it takes ahead, to start it the
-- moment a slot is free. As many of its places are on `free` as it has slots to work on; the rest is
-- `spare` and leased only while as many jobs wait as could be ahead on all servers that might have
-- them, so that no job waits on one server while another has nothing.
-- Nothing is offered of a server that is quarantined or drained, one place on probation, and as many
-- places less as its slots are lost: what is kept off the lists is suspended, and the heartbeats of
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

local working = {}

-- Slots of the server that are not lost. Scripts that change their number do so before they ask.
local function working_slots(server)
  if not working[server] then
    local lost = redis.call('HGET', key('lost_slots'), server) or '0'
    working[server] = number('sizes', server) - tonumber(string.match(lost, '^%d+'))
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
  for _, run in ipairs(redis.call('LRANGE', key('waiting:' .. class), 0, -1)) do
    jobs = jobs + queued_jobs(run, class)
  end
  return jobs >= places_ahead(class)
end

-- Take the slot of this class that comes next off the list `free` or `spare`, or nil.
local function take_slot(class, list)
  local slots = key(list .. ':' .. class)
  if list == 'spare' and (redis.call('EXISTS', slots) == 0 or not many_jobs_wait(class)) then return nil end
  local slot = redis.call('LPOP', slots)
  if not slot then return nil end
  redis.call('HINCRBY', key(COUNTS[list]), server_of(slot), -1)
  return slot
end

-- Put a slot that was taken back at the head of its list.
local function put_back(slot, list)
  redis.call('LPUSH', key(list .. ':' .. class_of(server_of(slot))), slot)
  redis.call('HINCRBY', key(COUNTS[list]), server_of(slot), 1)
end

-- Whether the job was lost with this server, or its row failed there, while another that can run it,
-- and takes jobs, has not tried it yet. It waits for the other no longer than a lease: its slots may
-- be busy for hours.
local function must_run_elsewhere(run, kind, job, server, lease_seconds)
  if not any_is_troubled(run) then return false end
  local lost = redis.call('HGET', of_run(run, 'lost'), job)
  local row_failed = redis.call('HGET', of_run(run, 'row_failed'), job) or ''
  local tried = lost and lost .. (string.match(row_failed, ' .*') or '') or row_failed
  if not string.find(tried, ' ' .. server .. ' ', 1, true) then return false end
  if now() > tonumber(string.match(tried, '^%S+')) + lease_seconds then return false end
  for _, other in ipairs(redis.call('HKEYS', key('servers'))) do
    local is_new = not string.find(tried, ' ' .. other .. ' ', 1, true)
    if is_new and redis.call('HEXISTS', key('held'), other) == 0 and server_can_run(other, kind) then
      return true
    end
  end
  return false
end

-- The run's first job of this kind that the server may have, taken off its queue, or nil.
local function job_of_kind(run, kind, server, lease_seconds)
  local tasks, passed_over = tasks_of(run, kind), {}
  local job = redis.call('LPOP', tasks)
  while job and must_run_elsewhere(run, kind, job, server, lease_seconds) do
    passed_over[#passed_over + 1] = job
    job = redis.call('LPOP', tasks)
  end
  for i = #passed_over, 1, -1 do
    redis.call('LPUSH', tasks, passed_over[i])
  end
  if job then note_taken(run, kind, job) end
  return job
end

-- The run's first job that the server may have, taken off the task queue, or nil. Of several kinds,
-- that one comes first whose group was fed first.
local function job_for(run, server, lease_seconds)
  local kinds, index = of_run(run, 'next:' .. class_of(server)), 0
  local kind = redis.call('ZRANGE', kinds, 0, 0)[1]
  while kind do
    local job = job_of_kind(run, kind, server, lease_seconds)
    if job then return job end
    index = index + 1
    kind = redis.call('ZRANGE', kinds, index, index)[1]
  end
end

-- The next job in turn for the server with this model, or nil. Runs take turns, a job each.
local function next_job(server, lease_seconds, model)
  local waiting = key('waiting:' .. class_of(server))
  for _ = 1, redis.call('LLEN', waiting) do
    local run = redis.call('LMOVE', waiting, waiting, 'LEFT', 'RIGHT')
    local job = fits(run, model) and job_for(run, server, lease_seconds)
    if job then return job, run end
    if queued_jobs(run, class_of(server)) == 0 then redis.call('LREM', waiting, 1, run) end
  end
end

-- Now, but no two leases at the same microsecond: what is stopped together waits in their order.
local leases_now = 0

local function moment_of_lease()
  leases_now = leases_now + 1
  return now() + leases_now / 1e6
end

local prompts = {} -- of the groups whose jobs are leased in this script

local function prompt_of(job, run)
  local group = group_of(job)
  local known = run .. '/' .. group
  prompts[known] = prompts[known] or redis.call('HGET', of_run(run, 'prompts'), group)
  return prompts[known]
end

local shortened = {} -- runs whose task queue has fewer jobs now

-- To be called once all is leased: wakes who feeds those runs, if they run dry.
local function wake_feeders()
  for run in pairs(shortened) do wake_if_prompts_are_wanted(run) end
end

-- Lease the next job in turn to a slot that is on no list and counts as occupied.
-- Returns {job, slot, attempt, prompt}, or nil if no job waits that its server may have.
local function lease_next(slot, lease_seconds)
  local model = all_serve_published() and model_with(server_of(slot))
  if not model then return nil end
  local job, run = next_job(server_of(slot), lease_seconds, model)
  if not job then return nil end
  keep_model(run, model)
  local attempt = redis.call('HINCRBY', of_run(run, 'attempts'), job, 1)
  redis.call('HSET', of_run(run, 'holders'), job, slot .. ' ' .. attempt)
  redis.call('HSET', key('slots'), slot, job .. ' ' .. attempt)
  redis.call('HSET', of_run(run, 'times'), job, string.format('%.6f %d', moment_of_lease(), weights()))
  redis.call('ZADD', key('leases'), now() + lease_seconds, job)
  shortened[run] = true
  return {job, slot, attempt, prompt_of(job, run)}
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
    'unreached', 'lost_slots',
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
