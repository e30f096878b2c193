-- The task queue of a run: a list for each kind of job, and an index by class of server, so that the
-- next job for a server is found however many kinds wait. Always true:
--   * `next:<class>` has the kinds with queued jobs that the class can run, and no other;
--   * its order is that in which the groups of their first jobs were fed;
--   * `queued` counts the jobs of these kinds;
--   * an open run stands in `waiting:<class>` while `queued` has jobs for the class.
local MAX_REMOVED_SINGLY = 16

local function tasks_of(run, kind)
  return of_run(run, 'tasks:' .. kind)
end

local placed = {} -- groups that were asked for in this script

-- A group's place in the order of feeding, and the kind of its jobs; nil if it is gone.
local function place_and_kind(run, group)
  local name = run .. '/' .. group
  if placed[name] == nil then placed[name] = redis.call('HGET', of_run(run, 'kinds'), group) end
  return string.match(placed[name] or '', '^(%d+) (.*)$')
end

local function kind_of(job)
  local _, kind = place_and_kind(run_of(job), group_of(job))
  return kind
end

local function count_queued(run, kind, more)
  redis.call('HINCRBY', of_run(run, 'queued'), ALL, more)
  for _, class in ipairs(classes_for(kind)) do
    redis.call('HINCRBY', of_run(run, 'queued'), class, more)
  end
end

local taken = {} -- by run and kind, how many jobs this script took off their queues and still counts

local function count_taken(run)
  for kind, jobs in pairs(taken[run] or {}) do count_queued(run, kind, -jobs) end
  taken[run] = nil
end

-- Queued jobs of the run that servers of this class can run; of ALL, and of NOBODY.
local function queued_jobs(run, class)
  count_taken(run)
  return tonumber(redis.call('HGET', of_run(run, 'queued'), class) or '0')
end

-- Another job of this kind is the first one now, or, with nil, none is left.
local function rank(run, kind, first)
  local place = first and place_and_kind(run, group_of(first))
  local function rank_in(class)
    if place then
      redis.call('ZADD', of_run(run, 'next:' .. class), place, kind)
    else
      redis.call('ZREM', of_run(run, 'next:' .. class), kind)
    end
  end
  rank_in(ALL)
  for _, class in ipairs(classes_for(kind)) do rank_in(class) end
end

-- Let the run take part in dispatch if it may.
local function offer(run)
  if redis.call('HGET', of_run(run, 'config'), 'open') ~= '1' then return end
  local begins = 0
  for _, class in ipairs(all_classes()) do
    if queued_jobs(run, class) > 0 then
      begins = begins + redis.call('ZADD', key('waiting:' .. class), place_in_turn(run), run)
      wake(key('work'))
    end
  end
  if begins > 0 then
    keep_to_turn(run)
    write_shares()
  end
end

-- The run takes no part in dispatch.
local function withhold(run)
  for _, class in ipairs(all_classes()) do redis.call('ZREM', key('waiting:' .. class), run) end
end

-- The jobs, of one kind, wait last, in their order.
local function queue_last(run, kind, jobs)
  if #jobs == 0 then return end
  local tasks = tasks_of(run, kind)
  local was_empty = redis.call('EXISTS', tasks) == 0
  call_with('RPUSH', tasks, jobs)
  count_queued(run, kind, #jobs)
  if was_empty then rank(run, kind, jobs[1]) end
end

-- The jobs wait first, each among those of its kind, in their order.
local function queue_first(run, jobs)
  local firsts, counts = {}, {}
  for i = #jobs, 1, -1 do
    local job, kind = jobs[i], kind_of(jobs[i])
    redis.call('LPUSH', tasks_of(run, kind), job)
    firsts[kind], counts[kind] = job, (counts[kind] or 0) + 1
  end
  for kind, first in pairs(firsts) do
    count_queued(run, kind, counts[kind])
    rank(run, kind, first)
  end
end

local function requeue(job)
  local run = run_of(job)
  queue_first(run, {job})
  offer(run)
end

-- Note that a job of this kind, which was the first, has left its queue. Who takes jobs calls
-- count_taken in the end.
local function note_taken(run, kind, job)
  taken[run] = taken[run] or {}
  taken[run][kind] = (taken[run][kind] or 0) + 1
  local first = redis.call('LINDEX', tasks_of(run, kind), 0) or nil
  if not first or group_of(first) ~= group_of(job) then rank(run, kind, first) end
end

-- Take these jobs of one kind off its queue, which may be long and may have none of them; returns
-- how many it had. It is read from its head until all are found, and only what is found is written.
local function take_off_tasks(run, kind, jobs)
  local tasks, leaving, found, seen = tasks_of(run, kind), {}, {}, {}
  for _, job in ipairs(jobs) do leaving[job] = true end
  while #found < #jobs do
    local part = redis.call('LRANGE', tasks, #seen, #seen + MAX_AT_ONCE - 1)
    for _, job in ipairs(part) do
      seen[#seen + 1] = job
      if leaving[job] then found[#found + 1] = job end
    end
    if #part < MAX_AT_ONCE then break end
  end
  if #found == 0 then return 0 end
  if #found <= MAX_REMOVED_SINGLY then
    for _, job in ipairs(found) do redis.call('LREM', tasks, 1, job) end
  else
    local others = {}
    for i = #seen, 1, -1 do
      if not leaving[seen[i]] then others[#others + 1] = seen[i] end
    end
    redis.call('LTRIM', tasks, #seen, -1)
    call_with('LPUSH', tasks, others)
  end
  count_queued(run, kind, -#found)
  rank(run, kind, redis.call('LINDEX', tasks, 0) or nil)
  return #found
end

local function forget_tasks(run)
  local names = {'queued'}
  for _, kind in ipairs(redis.call('ZRANGE', of_run(run, 'next:' .. ALL), 0, -1)) do
    names[#names + 1] = 'tasks:' .. kind
  end
  for _, class in ipairs(redis.call('HKEYS', of_run(run, 'queued'))) do
    names[#names + 1] = 'next:' .. class
  end
  forget_keys(run, names)
end

-- Make a prompt a group and queue the jobs of its first members. With a row, not '', the event
-- tells what groups of the same dataset row came to.
local function queue_group(run, group, prompt, kind, members, row)
  redis.call('HSET', of_run(run, 'prompts'), group, prompt)
  local place = redis.call('HINCRBY', of_run(run, 'counts'), 'groups_fed', 1)
  redis.call('HSET', of_run(run, 'kinds'), group, string.format('%d %s', place, kind))
  local jobs = {}
  for member = 0, members - 1 do
    jobs[#jobs + 1] = job_of(run, group, member)
  end
  queue_last(run, kind, jobs)
  count(run, 'submitted', members)
  local event = {type = 'PromptFed', group_id = group}
  if row ~= '' then
    local tried = redis.call('HGET', of_run(run, 'rows'), row)
    event.row, event.tried = row, tried and cmsgpack.unpack(tried) or nil
  end
  add_event(run, event)
end

-- Wake who feeds the run when more may be wanted than waits: orchestrator/demand.py says when.
local function wake_if_prompts_are_wanted(run)
  count_taken(run)
  local look_ahead = tonumber(redis.call('HGET', of_run(run, 'config'), 'look_ahead'))
  local told, queued = redis.call('HGETALL', of_run(run, 'queued')), {}
  for i = 1, #told, 2 do queued[told[i]] = tonumber(told[i + 1]) end
  local enough, any_lacks = look_ahead, false
  for _, class in ipairs(all_classes()) do
    local free = redis.call('LLEN', key('free:' .. class))
    enough = enough + free
    any_lacks = any_lacks or (queued[class] and queued[class] < free + look_ahead)
  end
  if any_lacks then
    for _, slots in ipairs(redis.call('HVALS', key('capacity'))) do
      enough = enough + tonumber(slots) * MAX_QUEUED_PER_SLOT
    end
  end
  if (queued[ALL] or 0) - (queued[NOBODY] or 0) < math.max(enough, 1) then wake(of_run(run, 'news')) end
end

-- Index the run's kinds anew, of which there may be very many.
local function index_tasks(run)
  local jobs, ranked, kinds = {}, {}, {}
  for _, class in ipairs(redis.call('HKEYS', of_run(run, 'queued'))) do
    if class ~= ALL then
      redis.call('UNLINK', of_run(run, 'next:' .. class))
      redis.call('HDEL', of_run(run, 'queued'), class)
      if redis.call('ZSCORE', key('classes'), class) then jobs[class] = 0 end
    end
  end
  local places = redis.call('ZRANGE', of_run(run, 'next:' .. ALL), 0, -1, 'WITHSCORES')
  for i = 1, #places, 2 do kinds[#kinds + 1] = places[i] end
  look_up(kinds)
  for i, kind in ipairs(kinds) do
    local waiting = redis.call('LLEN', tasks_of(run, kind))
    for _, class in ipairs(classes_for(kind)) do
      jobs[class] = (jobs[class] or 0) + waiting
      ranked[class] = ranked[class] or {}
      table.insert(ranked[class], places[2 * i])
      table.insert(ranked[class], kind)
    end
  end
  for class, kinds_of_class in pairs(ranked) do
    call_with('ZADD', of_run(run, 'next:' .. class), kinds_of_class)
  end
  for class, waiting in pairs(jobs) do redis.call('HSET', of_run(run, 'queued'), class, waiting) end
end

-- The classes are others now: find out again which of them can run what waits.
local function index_again()
  classes, able = nil, {}
  for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
    index_tasks(run)
    offer(run)
  end
end

-- A server with these abilities, '[[environment...], [tag...]]' sorted, is registered with so many
-- slots and places beyond. Returns its class.
local function join_class(abilities, slots, ahead)
  local class = string.sub(redis.sha1hex(abilities), 1, 16)
  redis.call('HINCRBY', key('ahead'), class, ahead)
  if redis.call('HINCRBY', key('capacity'), class, slots) > slots then return class end
  local environments, tags = unpack(cjson.decode(abilities))
  call_with('SADD', key('environments:' .. class), environments)
  call_with('SADD', key('tags:' .. class), tags)
  call_with('SADD', key('known_environments'), environments)
  call_with('SADD', key('known_tags'), tags)
  redis.call('ZADD', key('classes'), #tags * LEAST_OF_TAGS + #environments, class)
  index_again()
  return class
end

-- A server of this class is gone, with so many slots and places beyond.
local function leave_class(class, slots, ahead)
  redis.call('HINCRBY', key('ahead'), class, -ahead)
  if redis.call('HINCRBY', key('capacity'), class, -slots) > 0 then return end
  redis.call('ZREM', key('classes'), class)
  for _, name in ipairs({'ahead', 'capacity'}) do redis.call('HDEL', key(name), class) end
  for _, name in ipairs({'environments:', 'tags:', 'waiting:'}) do redis.call('DEL', key(name .. class)) end
  index_again()
end
