-- A delivery to a server that is known did not reach it. ARGV: prefix, server
local server = ARGV[2]
if redis.call('HEXISTS', key('servers'), server) == 0 then return end
distrust(server, redis.call('HINCRBY', key('unreached'), server, 1) >= MAX_UNREACHED)
