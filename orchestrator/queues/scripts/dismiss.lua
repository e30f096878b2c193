-- An LLM node is gone for good: what is published waits for it no longer.
-- ARGV: prefix, node, for how many seconds it has to be silent
-- Returns 1, 0 if the node is unknown, or as text for how many seconds it has been silent, if that
-- is too short.
local node = ARGV[2]
if redis.call('HEXISTS', key('llm_nodes'), node) == 0 then return 0 end
local silent = now() - tonumber(redis.call('ZSCORE', key('llm_seen'), node))
if silent < tonumber(ARGV[3]) then return tostring(silent) end
redis.call('HDEL', key('llm_nodes'), node)
redis.call('HDEL', key('llm_models'), node)
redis.call('ZREM', key('llm_seen'), node)
wake(key('work'))
serve_published({node})
return 1
