-- Take the jobs of silent servers, of those that have ended, and of expired leases back.
-- ARGV: prefix, lease_seconds, when the caller looked last, as it was told, or '', then pairs
-- "server, when it was heard of last", as told, of those that have ended
-- Returns, as text, the time now and the seconds after which to look again: the next lease or server
-- can expire then, or be overdue, or a quarter of a lease is over; then such pairs, flattened, of
-- the servers whose heartbeats are overdue: they may have ended.
local at, lease_seconds = now(), tonumber(ARGV[2])
local looked_at = tonumber(ARGV[3]) or at
local OVERDUE = lease_seconds / 10 -- half as long again as between two heartbeats, as they are set

-- Every server and lease counts as heard of now.
local function renew()
  for _, server in ipairs(redis.call('ZRANGE', key('seen'), 0, -1)) do
    redis.call('ZADD', key('seen'), now(), server)
  end
  for _, job in ipairs(redis.call('ZRANGE', key('leases'), 0, -1)) do
    redis.call('ZADD', key('leases'), now() + lease_seconds, job)
  end
end

-- Those that have ended, unless they were heard of since that was found out.
local function all_ended()
  local ended = {}
  for i = 4, #ARGV, 2 do
    if redis.call('ZSCORE', key('seen'), ARGV[i]) == ARGV[i + 1] then ended[#ended + 1] = ARGV[i] end
  end
  return ended
end

-- Whether most servers, of several, are silent or ended: that is hardly the fault of each.
local function most_are_silent(ended)
  local quiet = at - lease_seconds / 2
  local silent = redis.call('ZCOUNT', key('seen'), '-inf', quiet)
  for _, server in ipairs(ended) do
    if tonumber(redis.call('ZSCORE', key('seen'), server)) > quiet then silent = silent + 1 end
  end
  return silent > 1 and silent * 2 > redis.call('ZCARD', key('seen'))
end

local function take_back_from(server, how)
  local reason = 'agent server ' .. server .. how
  local common = at < tonumber(redis.call('GET', key('common_silence')) or '0')
  for _, lost in ipairs(forget_server(server)) do
    local job, slot, attempt = unpack(lost)
    if common then
      excuse(job, slot, attempt, reason .. ', as most servers did')
    else
      charge(job, slot, attempt, 'lost', reason)
    end
  end
end

-- Between two looks so far apart the caller or Redis stood still, and may have heard nobody: a lease
-- begins for all of them. Clocks that are set back or forward do the same.
if at < looked_at or at - looked_at > lease_seconds / 2 then renew() end
local silent = redis.call('ZRANGEBYSCORE', key('seen'), '-inf', at - lease_seconds)
local ended = all_ended()
if #silent + #ended > 0 and most_are_silent(ended) then
  redis.call('SET', key('common_silence'), string.format('%.3f', at + lease_seconds))
end
for _, server in ipairs(silent) do take_back_from(server, ' fell silent while it ran the job') end
for _, server in ipairs(ended) do
  take_back_from(server, ' ended while it ran the job: its address refuses connections')
end
for _, job in ipairs(redis.call('ZRANGEBYSCORE', key('leases'), '-inf', at)) do
  local slot, attempt = end_lease(job)
  if slot then
    vacate(slot)
    local server = server_of(slot)
    local reason = 'agent server ' .. server .. ' stopped naming the job in its heartbeats'
    charge(job, slot, attempt, 'lost', reason)
  else
    redis.call('ZREM', key('leases'), job)
  end
end
-- An outage that nobody notices between two looks is then too short to silence a server.
local next_expiry = lease_seconds / 4
local lease = redis.call('ZRANGE', key('leases'), 0, 0, 'WITHSCORES')
if lease[2] then next_expiry = math.min(next_expiry, tonumber(lease[2]) - at) end
-- A server is asked for as soon as it is overdue, and as long as it is.
local overdue = redis.call('ZRANGEBYSCORE', key('seen'), '-inf', at - OVERDUE, 'WITHSCORES')
local next_overdue = redis.call('ZRANGEBYSCORE', key('seen'), '(' .. (at - OVERDUE), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if #overdue > 0 then next_expiry = math.min(next_expiry, OVERDUE) end
if next_overdue[2] then next_expiry = math.min(next_expiry, tonumber(next_overdue[2]) + OVERDUE - at) end
return {string.format('%.6f', at), tostring(next_expiry), unpack(overdue)}
