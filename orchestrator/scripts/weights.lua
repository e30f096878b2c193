-- The LLM servers serve other weights. ARGV: prefix, version
redis.call('SET', key('weights'), ARGV[2])
