-- Make prompts groups and queue their jobs: all of them or none.
-- ARGV: prefix, run, first members of a group, jobs that it counts as, most jobs that may wait, the
-- trainer's epoch or '', then "group prompt kind row" flattened; the row is '' where no history is kept
-- Returns for each 1, or 0 if it was fed before; nothing is fed and 'unknown', 'closed', 'taken
-- over', or the number of jobs that wait, is returned if there is no such run, or it takes no more,
-- or not so many, or not from this trainer.
local run, members, counted = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST, FIELDS = 7, 4
if not is_known(run) then return 'unknown' end
if is_superseded(run, ARGV[6]) then return 'taken over' end
if redis.call('HGET', of_run(run, 'config'), 'closed') == '1' then return 'closed' end
local queued, new = queued_jobs(run, ALL), {}
-- A group without first members has its jobs when the sampler has heard of it: until then each event
-- may be one.
if members == 0 then queued = queued + counted * redis.call('LLEN', of_run(run, 'events')) end
local jobs = 0
for i = FIRST, #ARGV, FIELDS do
  if not new[ARGV[i]] and redis.call('SISMEMBER', of_run(run, 'fed'), ARGV[i]) == 0 then
    new[ARGV[i]] = true
    jobs = jobs + counted
  end
end
if jobs > 0 and queued + jobs > tonumber(ARGV[5]) then return queued end
local fed = {}
for i = FIRST, #ARGV, FIELDS do
  fed[#fed + 1] = redis.call('SADD', of_run(run, 'fed'), ARGV[i])
  if fed[#fed] == 1 then queue_group(run, ARGV[i], ARGV[i + 1], ARGV[i + 2], members, ARGV[i + 3]) end
end
offer(run)
return fed
