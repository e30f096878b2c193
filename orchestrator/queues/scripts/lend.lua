-- Parked jobs give way where they must: they wait first, oldest first, and are not charged. That is
-- * at once, if their trainer left;
-- * while another run waits for a slot like theirs and none is free, if their trainer is silent;
-- * also with a trainer that lives, if they have stood for long while the other run holds fewer slots
--   for its weight, or for so long that their run is idle.
-- Runs that hold slots spend time: those that wait have another place in turn, too.
-- ARGV: prefix, how many seconds are long, how many are idle
-- Returns {{job, slot, attempt}, ...}
local long_seconds, idle_seconds = tonumber(ARGV[2]), tonumber(ARGV[3])
local ended = {}

-- Of the LLM servers; nil if they differ or do not serve what was published: nothing is leased then.
local model = all_serve_published() and model_with('')

-- Whether none is free of the slots that the run waits for.
local function waits_in_vain(run)
  if not fits(run, model) or slots_left(run) == 0 then return false end
  for _, class in ipairs(all_classes()) do
    if queued_jobs(run, class) > 0 and redis.call('LLEN', key('free:' .. class)) > 0 then return false end
  end
  return true
end

-- The other runs that wait in vain and would be helped by slots of this class, in turn: {run, by how
-- many slots}.
local function in_need(run, class)
  local needs = {}
  for _, other in ipairs(model and redis.call('ZRANGE', key('waiting:' .. class), 0, -1) or {}) do
    if other ~= run and waits_in_vain(other) then
      needs[#needs + 1] = {run = other, slots = math.min(queued_jobs(other, class), slots_left(other))}
    end
  end
  return needs
end

-- Why all that is parked of the run on servers of a class gives way, or nil. `waiting` waits for them.
local function why_all(run, waiting)
  local seen, left = unpack(redis.call('HMGET', of_run(run, 'trainer'), 'seen', 'left'))
  if left then return 'its trainer left the run' end
  local silent = seen and now() - tonumber(seen) or 0
  local most = tonumber(redis.call('HGET', of_run(run, 'config'), 'trainer_silent') or '')
  if not (waiting and most) or silent < most then return nil end
  local reason = 'its trainer was not heard of for %.0f s, and run %s waited for a slot'
  return string.format(reason, silent, waiting.run)
end

local given = {} -- slots that this script gives to a run

-- Whether the run holds more slots for its weight than the other one has with one more.
local function holds_more(run, other)
  local own, others = share_of(run), share_of(other)
  return own.held / own.weight > (others.held + (given[other] or 0) + 1) / others.weight
end

-- Why a job that has stood for so long gives way to one of those in need, or nil.
local function why_for(run, stood, needs)
  for _, need in ipairs(needs) do
    local wants = need.slots > (given[need.run] or 0)
    if wants and (stood >= idle_seconds or holds_more(run, need.run)) then
      given[need.run] = (given[need.run] or 0) + 1
      return string.format('it had stood parked for %.0f s, and run %s waited for a slot', stood, need.run)
    end
  end
end

-- Why the parked job gives way, or nil: on its class of servers all do for `all`, if that is said.
local function why(run, job, all, needs)
  if all then return all end
  local _, _, _, since = times_of(job)
  local stood = now() - (since or now())
  if stood >= long_seconds then return why_for(run, stood, needs) end
end

-- Class -> why all that is parked there gives way, and who is in need; nil if nothing does anywhere.
local function reasons(run)
  local all, needs, any = {}, {}, false
  for _, class in ipairs(all_classes()) do
    needs[class] = in_need(run, class)
    all[class] = why_all(run, needs[class][1])
    any = any or all[class] or #needs[class] > 0
  end
  if any then return all, needs end
end

local moved_on = {} -- runs whose place in turn is as of now
for _, class in ipairs(all_classes()) do
  for _, run in ipairs(redis.call('ZRANGE', key('waiting:' .. class), 0, -1)) do
    if not moved_on[run] then keep_to_turn(run) end
    moved_on[run] = true
  end
end
write_shares()
for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  local all, needs
  if redis.call('EXISTS', of_run(run, 'parked')) == 1 then all, needs = reasons(run) end
  if all then
    local jobs, giving_way = oldest_first(run, redis.call('SMEMBERS', of_run(run, 'parked'))), {}
    for i, held in ipairs(values_of(of_run(run, 'holders'), jobs)) do
      local class = held and class_of(server_of(held))
      local reason = held and why(run, jobs[i], all[class], needs[class])
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
