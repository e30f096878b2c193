-- An LLM node is there. What it knows to be published counts if it is newer: Redis may have lost
-- that, and versions never fall.
-- ARGV: prefix, node, message, version that all its servers serve or '', version and path that were
-- published last as far as it knows, model
-- Returns {version, path} that its servers should serve.
local node, serves, known, known_path = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
redis.call('HSET', key('llm_nodes'), node, ARGV[3])
redis.call('ZADD', key('llm_seen'), now(), node)
if redis.call('HGET', key('llm_models'), node) ~= ARGV[7] then
  redis.call('HSET', key('llm_models'), node, ARGV[7])
  wake(key('work'))
end
local version, path = published()
if known > version or (known == version and path == '' and known_path ~= '') then
  set_published(known, known_path)
  version, path = known, known_path
end
if serves == version then
  serve_published({node})
else
  redis.call('HSETNX', key('unready'), node, string.format('%.3f', now()))
end
return {version, path}
