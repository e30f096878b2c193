-- Which model the servers have: a digest, or '' where nobody told, which fits every other. A run
-- keeps the model that its first job began with, and the weights that its batch takes at the least.

-- Both, if they may work together, else nil.
local function same_model(one, other)
  if one == '' or one == other then return other end
  if other == '' then return one end
end

local model_of_llm_servers

-- The model that a job on this server would have; nil if the servers differ.
local function model_with(server)
  if model_of_llm_servers == nil then
    model_of_llm_servers = ''
    for _, model in ipairs(redis.call('HVALS', key('llm_models'))) do
      model_of_llm_servers = model_of_llm_servers and same_model(model_of_llm_servers, model) or false
    end
  end
  if not model_of_llm_servers then return nil end
  return same_model(model_of_llm_servers, redis.call('HGET', key('models'), server) or '')
end

-- Whether the run goes on with this model, and its batch takes what is served.
local function fits(run, model)
  local begun_with, least = unpack(redis.call('HMGET', of_run(run, 'config'), 'model', 'least'))
  if tonumber(least or '0') > weights() then return false end
  return same_model(begun_with or '', model) ~= nil
end

local function keep_model(run, model)
  if model ~= '' then redis.call('HSETNX', of_run(run, 'config'), 'model', model) end
end
