-- Which weights every LLM server should serve, and whether they do. Nothing is leased meanwhile.

-- The weight version that was published last, and the path of its checkpoint; 0 and '' at first.
local function published()
  local version, path = unpack(redis.call('HMGET', key('published'), 'version', 'path'))
  return tonumber(version or '0'), path or ''
end

-- From now on the LLM servers should serve these: none does until its node says so.
local function set_published(version, path)
  redis.call('HSET', key('published'), 'version', string.format('%d', version), 'path', path)
  for _, node in ipairs(redis.call('HKEYS', key('llm_nodes'))) do
    redis.call('HSET', key('unready'), node, string.format('%.3f', now()))
  end
end

local leased_under

-- The version that a job which is leased now begins under.
local function weights()
  leased_under = leased_under or published()
  return leased_under
end

local unready

-- Whether every LLM node that has registered is known to serve what was published.
local function all_serve_published()
  if unready == nil then unready = redis.call('EXISTS', key('unready')) == 1 end
  return not unready
end

-- These nodes serve what was published: if they were the last to, jobs may be leased again.
local function serve_published(nodes)
  if #nodes == 0 or redis.call('HDEL', key('unready'), unpack(nodes)) == 0 then return end
  if redis.call('EXISTS', key('unready')) == 1 then return end
  wake(key('work'))
  for _, run in ipairs(redis.call('SMEMBERS', key('runs'))) do
    wake(of_run(run, 'news'))
  end
end
