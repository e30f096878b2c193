-- Lease nothing more to a server; what it runs goes on. ARGV: prefix, server
-- Returns 1, or 0 if the server is unknown.
local server = ARGV[2]
if redis.call('HEXISTS', key('servers'), server) == 0 then return 0 end
redis.call('HSET', key('held'), server, 'draining')
redis.call('HDEL', key('quarantine'), server)
withdraw(server)
return 1
