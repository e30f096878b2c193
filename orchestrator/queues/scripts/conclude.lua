-- Remove the oldest events, store what the sampler made of them and carry out its decisions.
-- ARGV: prefix, run, events concluded before, events concluded now, sampler state, the rest as in
-- WrittenConclusion of conclusions.py, msgpacked. A decision is its kind and its fields in order, as
-- in sampling/decisions.py; 'deliver' has the batch, its groups and members, its BatchReport, and
-- the report's slot seconds.
-- Returns {{'stop', 'park' or 'resume', job, slot, attempt}, ...}, a job once, or nil if somebody
-- else concluded.
local run, before, concluded = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local config = of_run(run, 'config')
if not is_known(run) then return nil end
if tonumber(redis.call('HGET', config, 'concluded') or '0') ~= before then return nil end

local change = cmsgpack.unpack(ARGV[6])
local JOB_HASHES = {
  'attempts', 'failures', 'lost', 'row_failed', 'excused', 'times', 'results', 'receipts',
}
local moved, place = {}, {}

-- What the server of the job is to be told: the last word counts.
local function move(what, job, slot, attempt)
  place[job] = place[job] or #moved + 1
  moved[place[job]] = {what, job, slot, attempt}
end

local function stop(job, reason)
  local slot, attempt = stop_attempt(job, reason)
  if not slot then return false end
  move('stop', job, slot, attempt)
  return true
end

local leaving = {} -- by kind, jobs that are to be taken off the task queue, if they are on it

local function take_off_the_queue()
  local dropped = 0
  for kind, jobs in pairs(leaving) do dropped = dropped + take_off_tasks(run, kind, jobs) end
  if dropped > 0 then count(run, 'dropped', dropped) end
  leaving = {}
end

-- Stop the jobs, or take them off the task queue, for good.
local function abandon(jobs, reason)
  local held, receipts = values_of(of_run(run, 'holders'), jobs), values_of(of_run(run, 'receipts'), jobs)
  for i, job in ipairs(jobs) do
    if held[i] then
      stop(job, reason)
      count(run, 'dropped', 1)
    elseif not receipts[i] then -- one that has its Result is not on the task queue
      local kind = kind_of(job)
      if kind then
        leaving[kind] = leaving[kind] or {}
        table.insert(leaving[kind], job)
      end
    end
  end
end

-- Those of the jobs that may wait do so first, in their order.
local function queue_those(jobs, may_wait)
  local waiting = {}
  for _, job in ipairs(jobs) do
    if may_wait(job) then waiting[#waiting + 1] = job end
  end
  queue_first(run, waiting)
  offer(run)
end

-- Whether what is unfinished is carried over from a batch. A group that was fed while the batch was
-- completed is put aside later: nothing is counted again.
local carries_over = redis.call('HGET', config, 'open') == '1'

local function count_carried_over()
  if not carries_over then return end
  carries_over = false
  take_off_the_queue()
  count(run, 'carried_over', queued_jobs(run, ALL) + redis.call('HLEN', of_run(run, 'holders')))
end

-- What runs of the run stands still; what stands already does so since then.
local function stand_still()
  local parked, jobs, held, written = {}, {}, {}, {}
  for _, job in ipairs(redis.call('SMEMBERS', of_run(run, 'parked'))) do parked[job] = true end
  local holders = redis.call('HGETALL', of_run(run, 'holders'))
  for i = 1, #holders, 2 do
    if not parked[holders[i]] then
      jobs[#jobs + 1] = holders[i]
      held[#held + 1] = holders[i + 1]
    end
  end
  for i, times in ipairs(values_of(of_run(run, 'times'), jobs)) do
    local leased_at, version, stood = read_times(times)
    written[#written + 1] = jobs[i]
    written[#written + 1] = string.format('%.6f %d %.3f %.3f', leased_at, version, stood, now())
    move('park', jobs[i], string.match(held[i], '^(.+) (%d+)$'))
  end
  call_with('SADD', of_run(run, 'parked'), jobs)
  call_with('HSET', of_run(run, 'times'), written)
end

local function go_on()
  local jobs, written = redis.call('SMEMBERS', of_run(run, 'parked')), {}
  local held = values_of(of_run(run, 'holders'), jobs)
  for i, times in ipairs(values_of(of_run(run, 'times'), jobs)) do
    local leased_at, version, stood, since = read_times(times)
    written[#written + 1] = jobs[i]
    written[#written + 1] = string.format('%.6f %d %.3f', leased_at, version, stood + now() - since)
    move('resume', jobs[i], string.match(held[i], '^(.+) (%d+)$'))
  end
  call_with('HSET', of_run(run, 'times'), written)
  redis.call('DEL', of_run(run, 'parked'))
end

-- Take an accepted result back; false if there is none.
local function withdraw_result(job)
  local receipt = redis.call('HGET', of_run(run, 'receipts'), job)
  if not receipt then return false end
  local attempt, slot, reward = string.match(receipt, '^(%S+) (%S+) (%S+)$')
  local leased_at = string.match(redis.call('HGET', of_run(run, 'times'), job), '^%S+')
  remember(job, slot, attempt, tonumber(leased_at), 'withdrawn', 'its tokens were too old for the batch')
  redis.call('HDEL', of_run(run, 'results'), job)
  redis.call('HDEL', of_run(run, 'receipts'), job)
  count(run, 'accepted', -1)
  redis.call('HINCRBYFLOAT', of_run(run, 'counts'), 'rewards_sum', -tonumber(reward))
  return true
end

-- The window of a batch ends: its seconds, and those that slots were without a job in it. It is
-- missing for a batch that was complete when it was requested. The next one, if any, begins.
local function close_window(slots)
  local since, ran = string.match(redis.call('HGET', config, 'window') or '', '^(%S+) (%S+)$')
  redis.call('HDEL', config, 'window')
  local ran_now = ran_till_now()
  if redis.call('HGET', config, 'open') == '1' then
    redis.call('HSET', config, 'window', string.format('%.3f %.3f', now(), ran_now))
  end
  if not since then return 0, 0 end
  local seconds = now() - tonumber(since)
  return seconds, math.max(0, slots * seconds - (ran_now - tonumber(ran)))
end

-- Forget a group: its prompt, its jobs, its results.
local function drop(group, reason)
  local jobs, living = {}, {}
  for member = 0, change.members - 1 do jobs[#jobs + 1] = job_of(run, group, member) end
  abandon(jobs, reason)
  for _, name in ipairs(JOB_HASHES) do call_with('HDEL', of_run(run, name), jobs) end
  for i, dead in ipairs(values_of(of_run(run, 'dead'), jobs)) do
    if not dead then living[#living + 1] = jobs[i] end
  end
  call_with('HDEL', of_run(run, 'history'), living)
  for _, name in ipairs({'prompts', 'kinds'}) do redis.call('HDEL', of_run(run, name), group) end
  redis.call('ZADD', of_run(run, 'gone_at'), now(), group)
end

-- Forget ids of groups that are gone: those beyond the latest, and those of long ago. Their prompts
-- would be new ones if they were fed again.
local function forget_gone()
  local gone = of_run(run, 'gone_at')
  local surplus = math.min(redis.call('ZCARD', gone) - MAX_GONE_KNOWN, MAX_AT_ONCE)
  local old = surplus > 0 and redis.call('ZRANGE', gone, 0, surplus - 1)
    or redis.call('ZRANGEBYSCORE', gone, '-inf', now() - RETENTION_SECONDS, 'LIMIT', 0, MAX_AT_ONCE)
  call_with('SREM', of_run(run, 'fed'), old)
  call_with('ZREM', gone, old)
end

local function count_seconds(fate, seconds)
  redis.call('HINCRBYFLOAT', of_run(run, 'counts'), 'seconds:' .. fate, string.format('%.3f', seconds))
end

local carry_out
carry_out = {
  open = function()
    redis.call('HSET', config, 'open', '1')
    redis.call('HSET', config, 'window', string.format('%.3f %.3f', now(), ran_till_now()))
    go_on()
    offer(run)
  end,

  hold = function()
    carries_over = true
    redis.call('HSET', config, 'open', '0')
    withhold(run)
  end,

  -- What else the run has is forgotten afterwards, in slices: sweep.lua.
  close = function()
    carry_out.hold()
    redis.call('UNLINK', of_run(run, 'open'), of_run(run, 'complete'))
    redis.call('HSET', config, 'sweeping', '1')
    redis.call('RPUSH', key('events'), run)
  end,

  enqueue = function(jobs)
    queue_first(run, jobs)
    offer(run)
    count(run, 'submitted', #jobs)
  end,

  -- Nearly all jobs of a large run are queued: Redis is not asked of each.
  park = function()
    stand_still()
    count_carried_over()
  end,

  -- One that waits already keeps its place: it is behind those that were stopped.
  requeue_all = function(reason)
    local jobs = oldest_first(run, redis.call('HKEYS', of_run(run, 'holders')))
    for _, job in ipairs(jobs) do stop(job, reason) end
    queue_first(run, jobs)
    count_carried_over()
    offer(run)
  end,

  requeue = function(jobs, reason)
    queue_those(jobs, function(job) return stop(job, reason) end)
  end,

  retract = function(jobs) queue_those(jobs, withdraw_result) end,

  cancel = abandon,

  drop = function(groups, reason)
    for _, group in ipairs(groups) do
      drop(group, reason)
      if redis.call('ZCARD', of_run(run, 'gone_at')) > MAX_GONE_KNOWN then forget_gone() end
    end
    forget_gone()
  end,

  remember = function(row, tried)
    redis.call('HSET', of_run(run, 'rows'), row, cmsgpack.pack(tried))
  end,

  deliver = function(batch, groups, report, spent)
    local slots = 0
    for _, size in ipairs(redis.call('HVALS', key('sizes'))) do slots = slots + tonumber(size) end
    local seconds, idle = close_window(slots)
    local stored = string.format('%.3f %d %.3f ', seconds, slots, idle) .. report
    redis.call('HSET', of_run(run, 'batches'), batch, groups)
    redis.call('HSET', of_run(run, 'reports'), batch, stored)
    redis.call('SET', of_run(run, 'last_report'), stored)
    redis.call('HSET', of_run(run, 'counts'), 'seconds:surplus', spent.surplus)
    spent.surplus, spent.idle = nil, idle
    for fate, each in pairs(spent) do count_seconds(fate, each) end
  end,
}

-- What a trainer may wait for, beside that prompts are wanted.
local TELLING = {open = true, hold = true, close = true, deliver = true}
local has_news = change.has_news

for _, decision in ipairs(change.decisions) do
  carry_out[decision[1]](unpack(decision, 2))
  has_news = has_news or TELLING[decision[1]]
end
take_off_the_queue()
for _, kind in ipairs({'open', 'complete'}) do
  call_with('HDEL', of_run(run, kind), change[kind].gone)
  call_with('HSET', of_run(run, kind), change[kind].written)
end
local kept = {}
for _, batch in ipairs(change.batches) do kept[batch] = true end
for _, batch in ipairs(redis.call('HKEYS', of_run(run, 'batches'))) do
  if not kept[batch] then
    has_news = true
    redis.call('HDEL', of_run(run, 'batches'), batch)
    redis.call('HDEL', of_run(run, 'reports'), batch)
  end
end
redis.call('LTRIM', of_run(run, 'events'), concluded, -1)
if redis.call('LLEN', of_run(run, 'events')) > 0 and not redis.call('LPOS', key('events'), run) then
  redis.call('RPUSH', key('events'), run)
end
redis.call('HINCRBY', config, 'concluded', concluded)
redis.call('HSET', config, 'least', change.least)
redis.call('SET', of_run(run, 'sampler'), ARGV[5])
local is_idle = queued_jobs(run, ALL) == 0 and redis.call('EXISTS', of_run(run, 'holders'), of_run(run, 'events')) == 0
if has_news or is_idle then wake(of_run(run, 'news')) else wake_if_prompts_are_wanted(run) end
wake(of_run(run, 'settled'))
return moved
