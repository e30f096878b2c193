-- What servers can run. The kind of a job is its environment and the tags that it needs, sorted, as
-- a JSON array: '["swe","gpu"]'. Servers with equal environments and tags are one class: what is kept
-- by class does not grow with the servers, and is found without a look at the kinds.
local ALL, NOBODY = 'all', 'nobody' -- no class is called so: theirs are hexadecimal digits
local LEAST_OF_TAGS = 1e6 -- a tag makes a class abler than any number of environments

local class_by_server, classes, able = {}, nil, {}

local function class_of(server)
  if not class_by_server[server] then
    class_by_server[server] = redis.call('HGET', key('class'), server)
  end
  return class_by_server[server]
end

-- All classes, the least able first: what it can run does not take a slot that can run more.
local function all_classes()
  classes = classes or redis.call('ZRANGE', key('classes'), 0, -1)
  return classes
end

local function has_tags(class, tags)
  for _, tag in ipairs(tags) do
    if redis.call('SISMEMBER', key('tags:' .. class), tag) == 0 then return false end
  end
  return true
end

-- Find out which classes can run each of these kinds, asking once for all.
local function look_up(kinds)
  local environments, tags = {}, {}
  for i, kind in ipairs(kinds) do
    able[kind], tags[i] = {}, cjson.decode(kind)
    environments[i] = table.remove(tags[i], 1)
  end
  for _, class in ipairs(all_classes()) do
    local i = 0
    in_parts(environments, function(...)
      for _, has in ipairs(redis.call('SMISMEMBER', key('environments:' .. class), ...)) do
        i = i + 1
        if has == 1 and has_tags(class, tags[i]) then table.insert(able[kinds[i]], class) end
      end
    end)
  end
  for _, kind in ipairs(kinds) do
    if #able[kind] == 0 then able[kind] = {NOBODY} end
  end
end

-- The classes that can run this kind; NOBODY if there is none.
local function classes_for(kind)
  if not able[kind] then look_up({kind}) end
  return able[kind]
end

local function server_can_run(server, kind)
  for _, class in ipairs(classes_for(kind)) do
    if class == class_of(server) then return true end
  end
  return false
end

-- Whether a job may exist that both can run.
local function overlap(one, other)
  if one == other then return true end
  return redis.call('SINTERCARD', 2, key('environments:' .. one), key('environments:' .. other), 'LIMIT', 1) == 1
end
