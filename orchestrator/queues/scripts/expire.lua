-- Take the jobs of silent servers and of expired leases back.
-- ARGV: prefix, lease_seconds, when the caller looked last, as it was told, or ''
-- Returns, as text, the time now and the seconds after which to look again: the next lease or server
-- can expire then, or a quarter of a lease is over.
local at, lease_seconds = now(), tonumber(ARGV[2])
local looked_at = tonumber(ARGV[3]) or at

-- Every server and lease counts as heard of now.
local function renew()
  for _, server in ipairs(redis.call('ZRANGE', key('seen'), 0, -1)) do
    redis.call('ZADD', key('seen'), now(), server)
  end
  for _, job in ipairs(redis.call('ZRANGE', key('leases'), 0, -1)) do
    redis.call('ZADD', key('leases'), now() + lease_seconds, job)
  end
end

-- Whether most servers, of several, are silent: that is hardly the fault of each.
local function most_are_silent()
  local silent = redis.call('ZCOUNT', key('seen'), '-inf', at - lease_seconds / 2)
  return silent > 1 and silent * 2 > redis.call('ZCARD', key('seen'))
end

local function take_back_from(server)
  local reason = 'agent server ' .. server .. ' fell silent while it ran the job'
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
if #silent > 0 and most_are_silent() then
  redis.call('SET', key('common_silence'), string.format('%.3f', at + lease_seconds))
end
for _, server in ipairs(silent) do take_back_from(server) end
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
local server = redis.call('ZRANGE', key('seen'), 0, 0, 'WITHSCORES')
if server[2] then next_expiry = math.min(next_expiry, tonumber(server[2]) + lease_seconds - at) end
return {string.format('%.6f', at), tostring(next_expiry)}
