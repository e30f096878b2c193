-- Take the jobs of silent servers and of expired leases back. ARGV: prefix, lease_seconds
-- Returns the seconds, as text, after which to look again: the next lease or server can expire then,
-- or a quarter of a lease is over.
local at, lease_seconds = now(), tonumber(ARGV[2])
for _, server in ipairs(redis.call('ZRANGEBYSCORE', key('seen'), '-inf', at - lease_seconds)) do
  for _, lost in ipairs(forget_server(server)) do
    local job, slot, attempt = unpack(lost)
    charge(job, slot, attempt, 'lost', 'agent server ' .. server .. ' fell silent while it ran the job')
  end
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
local server = redis.call('ZRANGE', key('seen'), 0, 0, 'WITHSCORES')
if server[2] then next_expiry = math.min(next_expiry, tonumber(server[2]) + lease_seconds - at) end
return tostring(next_expiry)
