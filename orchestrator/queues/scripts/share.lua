-- An operator says how many of the slots a run gets beside others.
-- ARGV: prefix, run, weight, the most slots that it may hold or ''
-- Returns 1, or 0 if there is no such run.
local run = ARGV[2]
if not is_known(run) then return 0 end
set_share(run, tonumber(ARGV[3]), tonumber(ARGV[4]))
wake(key('work'))
return 1
