-- After a time in which no heartbeat could arrive: every server and lease counts as heard of now.
-- ARGV: prefix, lease_seconds
renew(tonumber(ARGV[2]))
