-- The ids of jobs, "<run>/<group>/<member>", and of slots, "<server>#<index>"; see ids.py.

local function job_of(run, group, member)
  return run .. '/' .. group .. '/' .. member
end

local function run_of(job)
  return string.match(job, '^[^/]+')
end

local function group_of(job)
  return string.match(job, '^[^/]+/([^/]+)/')
end

local function slot_of(server, index)
  return server .. '#' .. index
end

local function server_of(slot)
  return string.match(slot, '^(.+)#')
end

