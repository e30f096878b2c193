-- Parked jobs give way where they must: they wait first, oldest first, and are not charged. That is
-- * at once, if their trainer left;
-- * while another run waits for a slot and none is free, if their trainer is silent;
-- * also with a trainer that lives, if they have stood for long while the other run has no slot.
-- ARGV: prefix, how many seconds are long
-- Returns {{job, slot, attempt}, ...}
local long_seconds = tonumber(ARGV[2])
local ended = {}

-- Of the LLM servers; nil if they differ or do not serve what was published: nothing is leased then.
local model = all_serve_published() and model_with('')

-- The first other run that waits in vain, and the first that has no slot but those of parked jobs.
-- One whose jobs could not be leased is helped by no slot.
local function in_need(run)
  if not model or redis.call('LLEN', key('free')) > 0 then return nil end
  local waiting, starved
  for _, other in ipairs(redis.call('LRANGE', key('waiting'), 0, -1)) do
    if other ~= run and fits(other, model) then
      waiting = waiting or other
      local occupied = redis.call('HLEN', of_run(other, 'holders'))
      if occupied == redis.call('SCARD', of_run(other, 'parked')) then starved = starved or other end
    end
  end
  return waiting, starved
end

local function give_way(run, job, reason)
  local slot, attempt = stop_attempt(job, reason)
  if not slot then return end
  redis.call('LPUSH', of_run(run, 'tasks'), job)
  ended[#ended + 1] = {job, slot, attempt}
end

-- Why all that is parked of the run gives way, or nil.
local function why_all(run, waiting)
  local seen, left = unpack(redis.call('HMGET', of_run(run, 'trainer'), 'seen', 'left'))
  if left then return 'its trainer left the run' end
  local silent = seen and now() - tonumber(seen) or 0
  local most = tonumber(redis.call('HGET', of_run(run, 'config'), 'trainer_silent') or '')
  if not (waiting and most) or silent < most then return nil end
  local reason = 'its trainer was not heard of for %.0f s, and run %s waited for a slot'
  return string.format(reason, silent, waiting)
end

for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
  if redis.call('EXISTS', of_run(run, 'parked')) == 1 then
    local waiting, starved = in_need(run)
    local reason = why_all(run, waiting)
    local parked = (reason or starved) and redis.call('SMEMBERS', of_run(run, 'parked')) or {}
    local jobs = oldest_first(run, parked)
    for i = #jobs, 1, -1 do
      local job, _, _, _, since = jobs[i], times_of(jobs[i])
      local stood = now() - (since or now())
      if reason then
        give_way(run, job, reason)
      elseif stood >= long_seconds then
        local lent = 'it had stood parked for %.0f s, and run %s had no slot'
        give_way(run, job, string.format(lent, stood, starved))
      end
    end
    offer(run)
  end
end
return ended
