-- Which servers have jobs ahead for which others, that can run all that they can, have free slots
-- while no job waits.
-- ARGV: prefix. Returns {server, how many of its jobs, ...}; they are held until they are given back.
local ahead, loads = {}, redis.call('HGETALL', key('loads'))
for i = 1, #loads, 2 do
  local beyond = tonumber(loads[i + 1]) - working_slots(loads[i])
  if beyond > 0 then ahead[loads[i]] = beyond end
end

local function a_job_waits(class)
  for _, run in ipairs(redis.call('ZRANGE', key('waiting:' .. class), 0, -1)) do
    if queued_jobs(run, class) > 0 and slots_left(run) > 0 then return true end
  end
  return false
end

-- Whether servers of this class can run whatever those of the other one can: what might not run
-- there would go to and fro.
local function covers(class, other)
  if class == other then return true end
  for _, has in ipairs({'environments:', 'tags:'}) do
    if #redis.call('SDIFF', key(has .. other), key(has .. class)) > 0 then return false end
  end
  return true
end

-- How many of its jobs are recalled from each server for so many free slots of this class.
local function recall(class, free, recalled)
  for server, beyond in pairs(ahead) do
    local most = math.min(beyond, free)
    if most > 0 and covers(class, class_of(server)) then
      recalled[server] = (recalled[server] or 0) + most
      ahead[server], free = beyond - most, free - most
    end
  end
end

local recalled, told = {}, {}
if next(ahead) then
  for _, class in ipairs(all_classes()) do
    local free = redis.call('LLEN', key('free:' .. class))
    if free > 0 and not a_job_waits(class) then recall(class, free, recalled) end
  end
end
for server, jobs in pairs(recalled) do
  told[#told + 1], told[#told + 2] = server, jobs
end
return told
