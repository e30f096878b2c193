-- Shared by every script here; prepended to each, then those that begin with _.
-- ARGV[1] is the key prefix, "rollyard:". Names in capitals: queues/limits.py, connection.py.
--
-- Keys, all under the prefix
--   version            string STATE_VERSION of all that follows
--   runs               set    run ids
--   closed             zset   closed ones of them by when they were closed, unix seconds
--   class              hash   server id -> its class: servers with equal environments and tags
--   classes            zset   classes of the registered servers, the least able first
--   capacity, ahead    hash   class -> slots of its servers; their places beyond
--   environments:<class>, tags:<class>  set  what its servers have
--   known_environments, known_tags  set  what any server has or had
--   waiting:<class>    zset   open runs with queued jobs that the class can run, by their place in turn
--   shares             hash   run id -> "<weight> <most slots, or -> <seconds it held slots, for its
--                             weight> <till when, unix seconds>"; '' -> "<class> <its turn, such seconds> ..."
--   free:<class>       list   places "server#index" that are offered: the server-availability queue
--   spare:<class>      list   places that are offered when many jobs wait
--   slots              hash   place -> "free" or the "job attempt" that occupies it; absent: suspended
--   servers            hash   server id -> AgentServer
--   secrets            hash   server id -> what only its own process knows
--   models, llm_models hash   server id, node id -> digest of the model that it has, or ''
--   sizes, places      hash   server id -> number of slots; of places: one more for each job ahead
--   loads              hash   server id -> number of its places that are occupied
--   offered, spared    hash   server id -> number of its places on its `free` list; on `spare`
--   lost_slots         hash   server id -> "<how many of its slots run nothing> <why>", if any
--   lent_slots         hash   server id -> how many of its slots the callers of its door have, if any
--   seen               zset   server ids by their last heartbeat, unix seconds
--   held               hash   server id -> why its slots are not offered: "draining",
--                             "quarantined" or "probation <slot>", the one slot that is
--   quarantine         hash   server id -> "<let back at, unix seconds> <times in a row>"
--   failing            hash   server id -> the jobs that failed there since its last success
--   unreached          hash   server id -> deliveries in a row that did not reach it
--   reclaims           hash   slot -> when the attempt that still occupies it was stopped
--   reclaimed          hash   "<server id> count|seconds|worst" -> of its slots, stop to free
--   common_silence     string until when, unix seconds, silence is no fault of a server's own
--   leases             zset   leased job ids by expiry, unix seconds
--   set_aside          hash   run id -> why its events cannot be concluded
--   llm_nodes          hash   node id -> LLMNode, as it was when it was last heard of
--   llm_seen           zset   node ids by their last heartbeat, unix seconds
--   published          hash   version and path of the weights that every LLM server should serve;
--                             before: "<version> <path>", until they do
--   unready            hash   node id -> since when its LLM servers do not, unix seconds
--   ran                string seconds that attempts, of all runs, have spent on their slots
--   work, events       list   one mark: wakes the dispatcher; run ids: wake the collector
-- under run:<run id>:
--   settings, sampler  string RunSettings, SamplerState without its groups
--   open, complete     hash   group id -> GroupState, as the sampler's state has them
--   config             hash   open and closed (0 or 1), max_failures, trainer_silent (seconds), look_ahead (jobs),
--                             concluded (events so far), sweeping: 1 while a closed run is not
--                             forgotten, window: "<since> <ran then>", of the batch that is sampled;
--                             model: the one it began with; least: weight version its batch takes
--   trainer            hash   of who drives it: epoch, host, pid, since, seen (unix seconds), and
--                             left, if it said goodbye
--   claims             hash   trainer id -> its epoch
--   fed                set    ids of groups that are, and of those in `gone_at`
--   gone_at            zset   ids of the last groups that were and are gone, by when, unix seconds
--   tasks:<kind>       list   queued job ids of this kind, next one first: the task queue
--   next:<class>       zset   kinds with queued jobs that the class can run, by the place of the
--                             first one's group; of class "all": every kind with queued jobs; of
--                             class "nobody": those that no server can run
--   queued             hash   class that the run has had jobs for, also "all" and "nobody" -> number
--                             of jobs of those kinds
--   kinds              hash   group id -> "<place in the order of feeding> <kind of its jobs>"
--   prompts            hash   group id -> Prompt
--   rows               hash   dataset row -> Tried: what its groups came to
--   attempts, failures hash   job id -> attempts leased, infrastructure failures
--   row_failed         hash   job id -> "<when, unix seconds> <the server where its row failed> "
--   lost               hash   job id -> "<when last, unix seconds> <each server it was lost with> "
--   excused            hash   job id -> how often it was lost as most servers were, not charged
--   times              hash   leased job id -> "<leased at> <weight version then>" and, if it was
--                             parked, " <seconds parked>" and, if it is, " <parked since>";
--                             accepted one -> "<leased at> <accepted at>"
--   history            hash   job id -> its last attempts that were not accepted, oldest first
--   dead, dead_prompts hash   job id -> when and why it died, its Prompt; of the first to die
--   holders            hash   leased job id -> "slot attempt"
--   parked             set    leased job ids that stand still until the run is opened, or they give
--                             way; they keep lease and slot, and each heartbeat that names them is
--                             told
--   results            hash   job id -> accepted Result
--   receipts           hash   job id -> "<attempt> <slot> <reward>" that was accepted
--   events             list   events not yet concluded, oldest first: the result queue
--   batches, reports   hash   batch id -> its groups and members; -> "<seconds> <slots> <idle seconds>
--                             <BatchReport>"; until it is acknowledged
--   last_report        string of the last batch, as in `reports`
--   counts             hash   submitted, accepted, dead, dropped, ...; seconds:<fate>
--   news, settled      list   one mark: wakes the trainer's wait; who asked and waits for a conclusion
local prefix = ARGV[1]
local MAX_AT_ONCE = 1024 -- arguments of one call, an even number: Lua's stack has an end

-- Keys of a run from which it was sampled: once it is closed, they are forgotten with its tasks.
local SAMPLED_FROM = {
  'kinds', 'prompts', 'rows', 'fed', 'gone_at', 'attempts', 'failures', 'lost', 'row_failed', 'excused',
  'times', 'history', 'parked', 'results', 'receipts', 'open', 'complete', 'batches', 'reports',
}

local function key(name)
  return prefix .. name
end

local function of_run(run, name)
  return prefix .. 'run:' .. run .. ':' .. name
end

-- Whether there is such a run: callers may know one that was forgotten since.
local function is_known(run)
  return redis.call('SISMEMBER', key('runs'), run) == 1
end

-- Redis time stands still while a script runs.
local time = redis.call('TIME')
local at_start = tonumber(time[1]) + tonumber(time[2]) / 1e6

local function now()
  return at_start
end

local function forget_keys(run, names)
  for _, name in ipairs(names) do redis.call('UNLINK', of_run(run, name)) end
end

local function count(run, name, by)
  redis.call('HINCRBY', of_run(run, 'counts'), name, by)
end

-- Whether another trainer has taken the run over since this epoch; '' is an operator's.
local function is_superseded(run, epoch)
  if epoch == '' then return false end
  return (redis.call('HGET', of_run(run, 'trainer'), 'epoch') or epoch) ~= epoch
end

-- Do `work` with a part of the items after the other, in their order.
local function in_parts(items, work)
  for first = 1, #items, MAX_AT_ONCE do
    work(unpack(items, first, math.min(first + MAX_AT_ONCE - 1, #items)))
  end
end

-- A command on a key whose arguments may be very many.
local function call_with(command, name, items)
  in_parts(items, function(...) redis.call(command, name, ...) end)
end

-- The values of these fields of a hash, in their order; false where there is none.
local function values_of(hash, fields)
  local values = {}
  in_parts(fields, function(...)
    for _, value in ipairs(redis.call('HMGET', hash, ...)) do values[#values + 1] = value end
  end)
  return values
end

local woken = {}

local function wake(list)
  if woken[list] then return end
  woken[list] = true
  if redis.call('LLEN', list) == 0 then
    redis.call('RPUSH', list, '1')
  end
end

-- An event has the fields of its class in orchestrator/events.py; `type` names the class.
-- The collector takes all there are: only the first that waits has to wake it.
local function add_events(run, events)
  local list, packed = of_run(run, 'events'), {}
  for i, event in ipairs(events) do packed[i] = cmsgpack.pack(event) end
  local is_first = redis.call('EXISTS', list) == 0
  call_with('RPUSH', list, packed)
  if is_first then redis.call('RPUSH', key('events'), run) end
end

local function add_event(run, event)
  add_events(run, {event})
end

local hold_more, write_shares -- in _shares.lua

local function forget_lease(job)
  hold_more(run_of(job), -1)
  redis.call('HDEL', of_run(run_of(job), 'holders'), job)
  redis.call('ZREM', key('leases'), job)
  write_shares()
end

-- End the job's lease; returns its slot and attempt, or nil if it was not leased.
local function end_lease(job)
  local held = redis.call('HGET', of_run(run_of(job), 'holders'), job)
  if not held then return nil end
  forget_lease(job)
  local slot, attempt = string.match(held, '^(.+) (%d+)$')
  return slot, attempt
end
