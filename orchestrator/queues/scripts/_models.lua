-- Which model the servers have: a digest, or '' where nobody told, which fits every other. A run
-- keeps the model that its first job began with, and the weights that its batch takes at the least.

-- Both, if they may work together, else nil.
local function same_model(one, other)
  if one == '' or one == other then return other end
  if other == '' then return one end
end

local model_of_llm_servers

local models = {} -- of agent servers that were asked for in this script

-- The model that a job on this server would have; nil if the servers differ.
local function model_with(server)
  if model_of_llm_servers == nil then
    model_of_llm_servers = ''
    for _, model in ipairs(redis.call('HVALS', key('llm_models'))) do
      model_of_llm_servers = model_of_llm_servers and same_model(model_of_llm_servers, model) or false
    end
  end
  if not model_of_llm_servers then return nil end
  models[server] = models[server] or redis.call('HGET', key('models'), server) or ''
  return same_model(model_of_llm_servers, models[server])
end

local begun_with, least = {}, {} -- model of a run, and the weight version that its batch takes

-- Whether the run goes on with this model, and its batch takes what is served.
local function fits(run, model)
  if not least[run] then
    local kept, version = unpack(redis.call('HMGET', of_run(run, 'config'), 'model', 'least'))
    begun_with[run], least[run] = kept or '', tonumber(version or '0')
  end
  return least[run] <= weights() and same_model(begun_with[run], model) ~= nil
end

-- The run goes on with this model, which fits.
local function keep_model(run, model)
  if begun_with[run] ~= '' or model == '' then return end
  begun_with[run] = model
  redis.call('HSET', of_run(run, 'config'), 'model', model)
end
