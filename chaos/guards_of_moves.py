"""The guards that stand in the moves of the queues."""

from chaos.guard import Guard

QUEUES = "tests/orchestrator/test_queues.py"
MACHINE = "tests/orchestrator/test_queue_machine.py"
OPERATIONS = "tests/orchestrator/test_operations.py"
PARKING = "tests/orchestrator/test_parking.py"
DECISIONS = "tests/orchestrator/test_decisions.py"
SCRIPTS = "orchestrator/scripts"

GUARDS_OF_MOVES = (
    Guard(
        "a report needs the lease",
        f"{SCRIPTS}/report.lua",
        "  if redis.call('HGET', of_run(run, 'holders'), job) ~= slot .. ' ' .. attempt then\n",
        "  if false then\n",
        QUEUES,
    ),
    Guard(
        "a repeated report gets its receipt",
        f"{SCRIPTS}/report.lua",
        "    if string.match(receipt, '^%S+') == attempt then return 'duplicate' end\n",
        "",
        QUEUES,
    ),
    Guard(
        "a stale report frees its slot",
        f"{SCRIPTS}/report.lua",
        "  elseif occupied then",
        "  elseif occupied and receipt ~= 'stale' then",
        QUEUES,
    ),
    Guard(
        "a report frees only its own slot",
        f"{SCRIPTS}/report.lua",
        "local occupied = redis.call('HGET', key('slots'), slot) == job .. ' ' .. attempt",
        "local occupied = true",
        QUEUES,
    ),
    Guard(
        "no job is leased ahead while few wait",
        f"{SCRIPTS}/_servers.lua",
        "  return jobs >= tonumber(redis.call('GET', key('ahead')) or '0')",
        "  return true",
        "tests/orchestrator/test_ahead.py",
    ),
    Guard(
        "a heartbeat is told what to stop",
        f"{SCRIPTS}/heartbeat.lua",
        "    stop[#stop + 1] = (i - 4) / 3",
        "",
        QUEUES,
    ),
    Guard(
        "a heartbeat extends leases",
        f"{SCRIPTS}/heartbeat.lua",
        "    redis.call('ZADD', key('leases'), at + lease_seconds, job)",
        "",
        QUEUES,
    ),
    Guard(
        "a slot is busy while its server names the attempt",
        f"{SCRIPTS}/heartbeat.lua",
        "  if running[slot] then",
        "  if false then",
        QUEUES,
    ),
    Guard(
        "a silent server's jobs are taken back",
        f"{SCRIPTS}/expire.lua",
        "    charge(job, slot, attempt, 'lost', 'agent server ' .. server",
        "    local _ = ('agent server ' .. server",
        QUEUES,
    ),
    Guard(
        "an expired lease is fenced off",
        f"{SCRIPTS}/expire.lua",
        "    vacate(slot)",
        "",
        QUEUES,
    ),
    Guard(
        "failures have a budget",
        f"{SCRIPTS}/_history.lua",
        "job, 1) >= most",
        "job, 1) < 0",
        QUEUES,
    ),
    Guard(
        "only different servers count against a job that loses them",
        f"{SCRIPTS}/_history.lua",
        "  if string.find(servers, ' ' .. server .. ' ', 1, true) then return nil end",
        "",
        OPERATIONS,
    ),
    Guard(
        "a lost job is given to another server",
        f"{SCRIPTS}/_servers.lua",
        "  while job and must_run_elsewhere(run, job, server) do",
        "  while false do",
        OPERATIONS,
    ),
    Guard(
        "never more than half of the servers are quarantined",
        f"{SCRIPTS}/_servers.lua",
        "    and (redis.call('HLEN', key('quarantine')) + 1) * 2 <= "
        "redis.call('HLEN', key('servers')) then",
        "    then",
        OPERATIONS,
    ),
    Guard(
        "a quarantined server is offered nothing",
        f"{SCRIPTS}/_servers.lua",
        "  if not may_be_offered(slot) then",
        "  if false then",
        OPERATIONS,
    ),
    Guard(
        "only the holder's lease is given back",
        f"{SCRIPTS}/give_back.lua",
        "if redis.call('HGET', of_run(run_of(job), 'holders'), job) == slot .. ' ' .. attempt then",
        "if true then",
        QUEUES,
    ),
    Guard(
        "recycling ends the lease",
        f"{SCRIPTS}/conclude.lua",
        "      return stop(job)\n",
        "      return false\n",
        QUEUES,
    ),
    Guard(
        "what is parked is told to its server",
        f"{SCRIPTS}/conclude.lua",
        "  move('park', job, string.match(held, '^(.+) (%d+)$'))\n",
        "",
        PARKING,
    ),
    Guard(
        "opening a run ends parking",
        f"{SCRIPTS}/conclude.lua",
        "    redis.call('DEL', of_run(run, 'parked'))\n",
        "",
        PARKING,
    ),
    Guard(
        "a heartbeat is told what is parked",
        f"{SCRIPTS}/heartbeat.lua",
        "    if is_parked(job) then stand[#stand + 1] = (i - 4) / 3 end\n",
        "",
        PARKING,
    ),
    Guard(
        "every decision to park is carried out once",
        f"{SCRIPTS}/conclude.lua",
        " or redis.call('SADD', of_run(run, 'parked'), job) == 0 then return end\n",
        " then return end redis.call('SADD', of_run(run, 'parked'), job)\n",
        PARKING,
    ),
    Guard(
        "a batch is kept until it is acknowledged",
        f"{SCRIPTS}/conclude.lua",
        "  if not kept[batch] then",
        "  if true then",
        DECISIONS,
    ),
    Guard(
        "a lease that ends is parked no more",
        f"{SCRIPTS}/_history.lua",
        "  if since then redis.call('SREM', of_run(run_of(job), 'parked'), job) end\n",
        "",
        PARKING,
    ),
    Guard(
        "time parked is not time on the slot",
        f"{SCRIPTS}/conclude.lua",
        "leased_at, version, stood + now() - since)",
        "leased_at, version, stood)",
        PARKING,
    ),
    Guard(
        "a result taken back is not fetched",
        f"{SCRIPTS}/conclude.lua",
        "  redis.call('HDEL', of_run(run, 'results'), job)\n",
        "",
        DECISIONS,
    ),
    Guard(
        "a result taken back can be given again",
        f"{SCRIPTS}/conclude.lua",
        "  redis.call('HDEL', of_run(run, 'receipts'), job)\n",
        "",
        DECISIONS,
    ),
    Guard(
        "a member that is not wanted is stopped",
        f"{SCRIPTS}/conclude.lua",
        "    for i = 2, #decision do abandon(decision[i]) end\n",
        "",
        DECISIONS,
    ),
    Guard(
        "a conclusion from an outdated state is refused",
        f"{SCRIPTS}/conclude.lua",
        "if tonumber(redis.call('HGET', config, 'concluded') or '0') ~= before then return nil end",
        "",
        MACHINE,
    ),
    Guard(
        "a prompt is fed once",
        f"{SCRIPTS}/submit.lua",
        "  if fed[#fed] == 1 then",
        "  if true then",
        QUEUES,
    ),
    Guard(
        "a registration may be repeated",
        f"{SCRIPTS}/register.lua",
        "if ARGV[6] == '1' and",
        "if false and",
        "tests/orchestrator/test_registration.py",
    ),
)
