-- Whose turn it is: slots are shared between the runs that wait, by their weights. Next is the run
-- that holds the fewest slots for its weight; of runs that hold about as many, the one that has held
-- slots for the fewest seconds, for its weight. Always true:
--   * `waiting:<class>` orders its runs so, as of a second ago at the most: lend.lua;
--   * no run is owed more than CREDIT slots: what it missed while it had nothing to do, or while the
--     slots were busy for long, gives it no right to all of them later.
local SECONDS_OF_A_SLOT = 600 -- that a run has had more weigh like one more slot that it holds
local CREDIT = 4

local shares, most_spent = {}, nil -- of runs that were asked for in this script; of all runs

-- The run's weight, the slots that it holds and may hold, and for how many seconds it has held slots
-- till now, for its weight.
local function share_of(run)
  if not shares[run] then
    local stored, most = unpack(redis.call('HMGET', key('shares'), run, ''))
    local weight, may_hold, spent, as_of = string.match(stored or '1 - 0 0', '^(%S+) (%S+) (%S+) (%S+)$')
    local held = redis.call('HLEN', of_run(run, 'holders'))
    weight, most_spent = tonumber(weight), most_spent or tonumber(most or '0')
    spent = tonumber(spent) + held * (now() - tonumber(as_of)) / weight
    most_spent = math.max(most_spent, spent)
    spent = math.max(spent, most_spent - CREDIT * SECONDS_OF_A_SLOT / weight)
    shares[run] = {weight = weight, may_hold = tonumber(may_hold) or math.huge, held = held, spent = spent}
  end
  return shares[run]
end

local function place_in_turn(run)
  local share = share_of(run)
  -- With half of the slot that it would have: else runs of less than a slot would get one each.
  return (share.held + 0.5) / share.weight + share.spent / SECONDS_OF_A_SLOT
end

local changed = {} -- runs whose shares are not as they are stored

-- The run's share is another one now, and with it its place where it waits. Who calls this calls
-- write_shares in the end.
local function change_share(run)
  local place = place_in_turn(run)
  changed[run] = true
  for _, class in ipairs(all_classes()) do redis.call('ZADD', key('waiting:' .. class), 'XX', place, run) end
end

function write_shares()
  if not next(changed) then return end
  local stored = {'', string.format('%.6f', most_spent)}
  for run in pairs(changed) do
    local share = share_of(run)
    local may_hold = share.may_hold == math.huge and '-' or share.may_hold
    stored[#stored + 1] = run
    stored[#stored + 1] = string.format('%.17g %s %.6f %.6f', share.weight, may_hold, share.spent, now())
  end
  changed = {}
  call_with('HSET', key('shares'), stored)
end

-- The run gets slots, or gives them up. To be called before `holders` says so, and write_shares after.
function hold_more(run, slots)
  local share = share_of(run)
  share.held = share.held + slots
  change_share(run)
end

-- How many more slots the run may hold.
local function slots_left(run)
  local share = share_of(run)
  return math.max(0, share.may_hold - share.held)
end

-- An operator's word; nothing is owed to the run, and it owes nothing.
local function set_share(run, weight, may_hold)
  local share = share_of(run)
  share.weight, share.may_hold, share.spent = weight, may_hold or math.huge, most_spent
  change_share(run)
  write_shares()
end
