-- Make prompts groups and queue their jobs: all of them or none.
-- ARGV: prefix, run, first members of a group, jobs that it counts as, most jobs that may wait, the
-- trainer's epoch or '', then "group prompt row" triples flattened; the row is '' where no history is
-- kept
-- Returns for each 1, or 0 if it was fed before; nothing is fed and 'closed', 'taken over', or the
-- number of jobs that wait, is returned if the run takes no more, or not so many, or not from this
-- trainer.
local run, members, counted = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST = 7
if is_superseded(run, ARGV[6]) then return 'taken over' end
if redis.call('HGET', of_run(run, 'config'), 'closed') == '1' then return 'closed' end
local queued, new = redis.call('LLEN', of_run(run, 'tasks')), {}
-- A group without first members has its jobs when the sampler has heard of it: until then each event
-- may be one.
if members == 0 then queued = queued + counted * redis.call('LLEN', of_run(run, 'events')) end
local jobs = 0
for i = FIRST, #ARGV, 3 do
  if not new[ARGV[i]] and redis.call('SISMEMBER', of_run(run, 'fed'), ARGV[i]) == 0 then
    new[ARGV[i]] = true
    jobs = jobs + counted
  end
end
if jobs > 0 and queued + jobs > tonumber(ARGV[5]) then return queued end
local fed = {}
for i = FIRST, #ARGV, 3 do
  fed[#fed + 1] = redis.call('SADD', of_run(run, 'fed'), ARGV[i])
  if fed[#fed] == 1 then queue_group(run, ARGV[i], ARGV[i + 1], members, ARGV[i + 2]) end
end
offer(run)
return fed
