-- Remove the oldest events, store what the sampler made of them and carry out its decisions.
-- ARGV: prefix, run, events concluded before, events concluded now, sampler state, closed (0 or 1),
-- decisions
-- A decision is {kind, ...}, msgpacked: {'open'}, {'hold'}, {'recycle', job...},
-- {'drop', job...} (all jobs of one group), {'deliver', batch, group ids}.
-- Returns {job, slot, attempt, job, ...} of the leases ended, or nil if somebody else concluded.
local run, before, concluded = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local config = of_run(run, 'config')
if tonumber(redis.call('HGET', config, 'concluded') or '0') ~= before then return nil end

local ended = {}

local function stop(job)
  local slot, attempt = end_lease(job)
  if not slot then return false end
  note(job, slot, attempt, 'stopped', 'nothing of the run is wanted until the next batch')
  redis.call('HSET', key('reclaims'), slot, string.format('%.6f', now()))
  count(run, 'attempts_stopped', 1)
  ended[#ended + 1] = job
  ended[#ended + 1] = slot
  ended[#ended + 1] = attempt
  return true
end

local carry_out = {
  open = function()
    redis.call('HSET', config, 'open', '1')
    offer(run)
  end,

  hold = function()
    redis.call('HSET', config, 'open', '0')
    redis.call('LREM', key('waiting'), 0, run)
  end,

  -- Stopped jobs wait first, oldest first, before those that wait already.
  recycle = function(decision)
    for i = #decision, 2, -1 do
      local job = decision[i]
      if stop(job) then redis.call('LPUSH', of_run(run, 'tasks'), job) end
      -- One that was accepted, but not concluded yet, is finished.
      if redis.call('HEXISTS', of_run(run, 'receipts'), job) == 0 then
        count(run, 'recycled', 1)
      end
    end
  end,

  -- Forget a group: its prompt, its jobs, its results.
  drop = function(decision)
    for i = 2, #decision do
      local job = decision[i]
      if stop(job) or redis.call('LREM', of_run(run, 'tasks'), 1, job) == 1 then
        count(run, 'dropped', 1)
      end
      for _, name in ipairs({'attempts', 'failures', 'lost', 'times', 'results', 'receipts'}) do
        redis.call('HDEL', of_run(run, name), job)
      end
      if redis.call('HEXISTS', of_run(run, 'dead'), job) == 0 then
        redis.call('HDEL', of_run(run, 'history'), job)
      end
    end
    local group = group_of(decision[2])
    redis.call('HDEL', of_run(run, 'prompts'), group)
    if redis.call('RPUSH', of_run(run, 'gone'), group) > MOST_GONE_KNOWN then
      redis.call('SREM', of_run(run, 'fed'), redis.call('LPOP', of_run(run, 'gone')))
    end
  end,

  deliver = function(decision)
    redis.call('DEL', of_run(run, 'batches'))
    redis.call('HSET', of_run(run, 'batches'), decision[2], cmsgpack.pack(decision[3]))
  end,
}

for _, decision in ipairs(cmsgpack.unpack(ARGV[7])) do
  carry_out[decision[1]](decision)
end
redis.call('LTRIM', of_run(run, 'events'), concluded, -1)
if redis.call('LLEN', of_run(run, 'events')) > 0 and not redis.call('LPOS', key('events'), run) then
  redis.call('RPUSH', key('events'), run)
end
redis.call('HINCRBY', config, 'concluded', concluded)
redis.call('SET', of_run(run, 'sampler'), ARGV[5])
redis.call('HSET', config, 'closed', ARGV[6])
wake(of_run(run, 'news'))
return ended
