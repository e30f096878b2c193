-- These LLM nodes serve the weights of this version. ARGV: prefix, version, node...
-- One that is not what was published last changes nothing.
if published() ~= tonumber(ARGV[2]) then return end
redis.call('HDEL', key('published'), 'before')
serve_published({unpack(ARGV, 3)})
