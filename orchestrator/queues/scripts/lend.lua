-- Parked jobs give way where they must: they wait first, oldest first, and are not charged. That is
-- * at once, if their trainer left;
-- * while another run waits for a slot like theirs and none is free, if their trainer is silent;
-- * also with a trainer that lives, if they have stood for long while the other run has no slot.
-- ARGV: prefix, how many seconds are long
-- Returns {{job, slot, attempt}, ...}
local long_seconds = tonumber(ARGV[2])
local ended = {}

-- Of the LLM servers; nil if they differ or do not serve what was published: nothing is leased then.
local model = all_serve_published() and model_with('')

-- Whether the run waits for slots, and none that it could have is free.
local function waits_in_vain(run)
  if not fits(run, model) then return false end
  for _, class in ipairs(all_classes()) do
    if queued_jobs(run, class) > 0 and redis.call('LLEN', key('free:' .. class)) > 0 then return false end
  end
  return true
end

-- Of the other runs that wait in vain and would be helped by a slot of this class: the first one, and
-- the first that has no slot but those of parked jobs.
local function in_need(run, class)
  local waiting, starved
  for _, other in ipairs(model and redis.call('LRANGE', key('waiting:' .. class), 0, -1) or {}) do
    if other ~= run and waits_in_vain(other) then
      waiting = waiting or other
      local occupied = redis.call('HLEN', of_run(other, 'holders'))
      if occupied == redis.call('SCARD', of_run(other, 'parked')) then starved = starved or other end
    end
  end
  return waiting, starved
end

-- Why all that is parked of the run on servers of a class gives way, or nil. `waiting` waits for them.
local function why_all(run, waiting)
  local seen, left = unpack(redis.call('HMGET', of_run(run, 'trainer'), 'seen', 'left'))
  if left then return 'its trainer left the run' end
  local silent = seen and now() - tonumber(seen) or 0
  local most = tonumber(redis.call('HGET', of_run(run, 'config'), 'trainer_silent') or '')
  if not (waiting and most) or silent < most then return nil end
  local reason = 'its trainer was not heard of for %.0f s, and run %s waited for a slot'
  return string.format(reason, silent, waiting)
end

-- Why the parked job gives way, or nil. On its class of servers all do for `all`, if that is said;
-- else those that have stood for long do for the run `starved`, if there is one.
local function why(job, all, starved)
  if all or not starved then return all end
  local _, _, _, since = times_of(job)
  local stood = now() - (since or now())
  if stood < long_seconds then return nil end
  return string.format('it had stood parked for %.0f s, and run %s had no slot', stood, starved)
end

-- Class -> why all that is parked there gives way, and for whom what has stood for long does; nil if
-- nothing does anywhere.
local function reasons(run)
  local all, starved, any = {}, {}, false
  for _, class in ipairs(all_classes()) do
    local waiting
    waiting, starved[class] = in_need(run, class)
    all[class] = why_all(run, waiting)
    any = any or all[class] or starved[class]
  end
  if any then return all, starved end
end

for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  local all, starved
  if redis.call('EXISTS', of_run(run, 'parked')) == 1 then all, starved = reasons(run) end
  if all then
    local jobs, giving_way = oldest_first(run, redis.call('SMEMBERS', of_run(run, 'parked'))), {}
    for i, held in ipairs(values_of(of_run(run, 'holders'), jobs)) do
      local class = held and class_of(server_of(held))
      local reason = held and why(jobs[i], all[class], starved[class])
      if reason then
        giving_way[#giving_way + 1] = jobs[i]
        ended[#ended + 1] = {jobs[i], stop_attempt(jobs[i], reason)}
      end
    end
    queue_first(run, giving_way)
    offer(run)
  end
end
return ended
