-- Pair the head of the task queue with the head of the server-availability queue.
-- ARGV: prefix, lease_seconds
-- Returns {job, slot, attempt, prompt} or nil.
if redis.call('LLEN', key('waiting')) == 0 then return nil end
local slot = redis.call('LPOP', key('free'))
if not slot then return nil end
local leased = lease_next(slot, tonumber(ARGV[2]))
if not leased then redis.call('LPUSH', key('free'), slot) end
return leased
