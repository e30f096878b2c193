-- Whose turn it is: slots are shared between the runs that wait, by their weights. Next is the run
-- that holds the fewest slots for its weight; of runs that hold about as many, the one that has held
-- slots for the fewest seconds, for its weight. Always true:
--   * `waiting:<class>` orders its runs so, as of a second ago at the most: lend.lua;
--   * the turn of a class is where the runs are that get its slots: the most seconds of any when it
--     got one. It never falls. A run that waits for slots of several classes goes by the highest;
--   * a run that waits is at most CREDIT slots before its turn and DEBT behind it, as of a second ago:
--     what it missed or had too much of, while it had nothing to do or slots were busy for long, is
--     not made up for by all slots later.
local SECONDS_OF_A_SLOT = 600 -- that a run has had more weigh like one more slot that it holds
local CREDIT, DEBT = 1, 3 -- a run that would have less than a slot needs half a slot of credit

local shares, turns = {}, nil -- of runs that were asked for in this script; by class

local function read_turns(stored)
  turns = {}
  for class, turn in string.gmatch(stored, '(%S+) (%S+)') do turns[class] = tonumber(turn) end
end

-- The run's weight, the slots that it holds and may hold, and for how many seconds it has held slots
-- till now, for its weight.
local function share_of(run)
  if not shares[run] then
    local stored, stored_turns = unpack(redis.call('HMGET', key('shares'), run, ''))
    if not turns then read_turns(stored_turns or '') end
    local weight, may_hold, spent, as_of = string.match(stored or '1 - 0 0', '^(%S+) (%S+) (%S+) (%S+)$')
    local held = redis.call('HLEN', of_run(run, 'holders'))
    local passed = math.max(0, now() - tonumber(as_of)) -- the clock may have been put back
    weight = tonumber(weight)
    spent = tonumber(spent) + held * passed / weight
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
  local stored, stored_turns = {}, {}
  for run in pairs(changed) do
    local share = share_of(run)
    local may_hold = share.may_hold == math.huge and '-' or share.may_hold
    stored[#stored + 1] = run
    stored[#stored + 1] = string.format('%.17g %s %.6f %.6f', share.weight, may_hold, share.spent, now())
  end
  for class, turn in pairs(turns) do stored_turns[#stored_turns + 1] = string.format('%s %.6f', class, turn) end
  stored[#stored + 1], stored[#stored + 2] = '', table.concat(stored_turns, ' ')
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

-- The run gets a slot of this class.
local function take_turn(run, class)
  local spent = share_of(run).spent
  turns[class] = math.max(turns[class] or spent, spent)
end

-- The turn by which the run goes; nil if it waits for no slot that any run ever got.
local function turn_of(run)
  local highest
  for _, class in ipairs(all_classes()) do
    if turns[class] and redis.call('ZSCORE', key('waiting:' .. class), run) then
      highest = math.max(highest or turns[class], turns[class])
    end
  end
  return highest
end

-- As time passes, and when the run begins to wait.
local function keep_to_turn(run)
  local share = share_of(run)
  local turn, slot = turn_of(run), SECONDS_OF_A_SLOT / share.weight
  if turn then share.spent = math.min(math.max(share.spent, turn - CREDIT * slot), turn + DEBT * slot) end
  change_share(run)
end

-- An operator's word; nothing is owed to the run, and it owes nothing.
local function set_share(run, weight, may_hold)
  local share = share_of(run)
  share.weight, share.may_hold, share.spent = weight, may_hold or math.huge, turn_of(run) or share.spent
  change_share(run)
  write_shares()
end
