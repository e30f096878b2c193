-- Every LLM node refused these weights before it touched any: what was published before stands.
-- ARGV: prefix, version
local before = redis.call('HGET', key('published'), 'before')
if published() ~= tonumber(ARGV[2]) or not before then return end
local version, path = string.match(before, '^(%d+) (.*)$')
redis.call('HDEL', key('published'), 'before')
set_published(tonumber(version), path)
