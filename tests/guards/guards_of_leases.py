"""The guards that stand in the moves of leases: how they are given, kept, reported and ended."""

from tests.guards.guard import Guard

QUEUES = "tests/orchestrator/test_queues.py"
SCRIPTS = "orchestrator/queues/scripts"

GUARDS_OF_LEASES = (
    Guard(
        "nothing is leased while a node does not serve what was published",
        f"{SCRIPTS}/_weights.lua",
        "  if unready == nil then unready = redis.call('EXISTS', key('unready')) == 1 end\n",
        "",
        "tests/orchestrator/test_published_weights.py",
    ),
    Guard(
        "no job is leased ahead while few wait",
        f"{SCRIPTS}/_servers.lua",
        "  return jobs >= places_ahead(class)",
        "  return true",
        "tests/orchestrator/test_ahead.py",
    ),
    Guard(
        "a job ahead is recalled only for a server that can run it",
        f"{SCRIPTS}/recall.lua",
        "    if most > 0 and covers(class, class_of(server)) then",
        "    if most > 0 then",
        "tests/orchestrator/test_ahead.py",
    ),
    Guard(
        "what has begun to run is not recalled",
        "agent_server/jobs/slots.py",
        "            if place is None or place.is_set():",
        "            if place is None:",
        "tests/agent_server/test_slots.py",
    ),
    Guard(
        "a heartbeat is told what to stop",
        f"{SCRIPTS}/heartbeat.lua",
        "    stop[#stop + 1] = (i - FIRST_LEASE) / 3",
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
        "  if running[slot] or",
        "  if",
        QUEUES,
    ),
    Guard(
        "a silent server's jobs are taken back",
        f"{SCRIPTS}/expire.lua",
        "      charge(job, slot, attempt, 'lost', reason)\n",
        "",
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
        "only the holder's lease is given back",
        f"{SCRIPTS}/give_back.lua",
        "if redis.call('HGET', of_run(run_of(job), 'holders'), job) == slot .. ' ' .. attempt then",
        "if true then",
        QUEUES,
    ),
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
        "a row that fails is not held against its server",
        f"{SCRIPTS}/report.lua",
        "  if blame == 'row' then return charge(job, slot, attempt, 'row_failed', reason) end\n",
        "",
        "tests/orchestrator/test_row_failures.py",
    ),
    Guard(
        "failures have a budget",
        f"{SCRIPTS}/_history.lua",
        "job, 1) >= most",
        "job, 1) < 0",
        QUEUES,
    ),
)
