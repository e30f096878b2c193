-- After a time in which no heartbeat could arrive: every server and lease counts as heard of now.
-- ARGV: prefix, lease_seconds
local at = now()
for _, server in ipairs(redis.call('ZRANGE', key('seen'), 0, -1)) do
  redis.call('ZADD', key('seen'), at, server)
end
for _, job in ipairs(redis.call('ZRANGE', key('leases'), 0, -1)) do
  redis.call('ZADD', key('leases'), at + tonumber(ARGV[2]), job)
end
