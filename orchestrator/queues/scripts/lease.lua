-- Pair the heads of the task queue with the heads of the server-availability queue, class by class
-- of servers, the least able first.
-- ARGV: prefix, lease_seconds, most
-- Returns {{job, slot, attempt, prompt}, ...}
if not all_serve_published() then return {} end
local lease_seconds, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local leases, in_vain = {}, {}

local function lease_slots(class, list)
  local passed_over, occupied = {}, {}
  while #leases < most and redis.call('EXISTS', key('waiting:' .. class)) == 1 do
    local slot = take_slot(class, list)
    if not slot then break end
    local server = server_of(slot)
    local lease = not in_vain[server] and lease_next(slot, lease_seconds)
    if lease then
      occupied[server] = (occupied[server] or 0) + 1
      leases[#leases + 1] = lease
    else -- the jobs that wait were lost with its server: look through them once, not for each slot
      in_vain[server] = true
      passed_over[#passed_over + 1] = slot
    end
  end
  for i = #passed_over, 1, -1 do put_back(passed_over[i], list) end
  for server, slots in pairs(occupied) do occupy(server, list, slots) end
end

for _, list in ipairs({'free', 'spare'}) do
  for _, class in ipairs(all_classes()) do lease_slots(class, list) end
end
finish_leasing()
return leases
