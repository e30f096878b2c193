"""The guards that stand in the moves of runs: their trainers, and what the sampler decided."""

from tests.guards.guard import Guard

QUEUES = "tests/orchestrator/test_queues.py"
MACHINE = "tests/orchestrator/test_queue_machine.py"
LARGE = "tests/orchestrator/test_large_runs.py"
LENDING = "tests/orchestrator/test_lending.py"
PARKING = "tests/orchestrator/test_parking.py"
DECISIONS = "tests/orchestrator/test_decisions.py"
SCRIPTS = "orchestrator/queues/scripts"
CLOSED = "tests/orchestrator/test_closed_runs.py"

GUARDS_OF_RUNS = (
    Guard(
        "an elder trainer feeds nothing",
        f"{SCRIPTS}/submit.lua",
        "if is_superseded(run, ARGV[6]) then return 'taken over' end\n",
        "",
        LENDING,
    ),
    Guard(
        "an elder trainer asks for nothing",
        f"{SCRIPTS}/tell.lua",
        "if is_superseded(ARGV[2], ARGV[4]) then return 0 end\n",
        "",
        LENDING,
    ),
    Guard(
        "an elder trainer publishes nothing",
        f"{SCRIPTS}/publish.lua",
        "if is_superseded(run, ARGV[6]) then return {'not driven'} end\n",
        "",
        "tests/orchestrator/test_one_trainer.py",
    ),
    Guard(
        "a claim that is repeated takes nothing over again",
        f"{SCRIPTS}/claim.lua",
        "if claimed then return tonumber(claimed) end\n",
        "",
        LENDING,
    ),
    Guard(
        "parked jobs keep their slots for a trainer that lives",
        f"{SCRIPTS}/lend.lua",
        " or silent < most then",
        " then",
        LENDING,
    ),
    Guard(
        "a prompt is fed once",
        f"{SCRIPTS}/submit.lua",
        "  if fed[#fed] == 1 then",
        "  if true then",
        QUEUES,
    ),
    Guard(
        "a conclusion from an outdated state is refused",
        f"{SCRIPTS}/conclude.lua",
        "if tonumber(redis.call('HGET', config, 'concluded') or '0') ~= before then return nil end",
        "",
        MACHINE,
    ),
    Guard(
        "a batch is kept until it is acknowledged",
        f"{SCRIPTS}/conclude.lua",
        "  if not kept[batch] then",
        "  if true then",
        DECISIONS,
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
        "  cancel = abandon,\n",
        "  cancel = function() end,\n",
        DECISIONS,
    ),
    Guard(
        "what is queued again loses its lease",
        f"{SCRIPTS}/conclude.lua",
        "function(job) return stop(job, reason) end)",
        "function() return true end)",
        QUEUES,
    ),
    Guard(
        "what is requeued with all others ends its lease",
        f"{SCRIPTS}/conclude.lua",
        "    for _, job in ipairs(jobs) do stop(job, reason) end\n",
        "",
        QUEUES,
    ),
    Guard(
        "what is requeued together waits in the order in which it was leased",
        f"{SCRIPTS}/_history.lua",
        "return leased_at[one] < leased_at[other] end",
        "return leased_at[one] > leased_at[other] end",
        QUEUES,
    ),
    Guard(
        "queued jobs that are not wanted leave the queue, however many they are",
        f"{SCRIPTS}/_tasks.lua",
        "      if not leaving[seen[i]] then others",
        "      if true then others",
        LARGE,
    ),
    Guard(
        "what is parked is told to its server",
        f"{SCRIPTS}/conclude.lua",
        "    move('park', jobs[i], string.match(held[i], '^(.+) (%d+)$'))\n",
        "",
        PARKING,
    ),
    Guard(
        "opening a run ends parking",
        f"{SCRIPTS}/conclude.lua",
        "  redis.call('DEL', of_run(run, 'parked'))\n",
        "",
        PARKING,
    ),
    Guard(
        "a heartbeat is told what is parked",
        f"{SCRIPTS}/heartbeat.lua",
        "    if is_parked(job) then stand[#stand + 1] = (i - FIRST_LEASE) / 3 end\n",
        "",
        PARKING,
    ),
    Guard(
        "every decision to park is carried out once",
        f"{SCRIPTS}/conclude.lua",
        "    if not parked[holders[i]] then\n",
        "    if true then\n",
        PARKING,
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
        "nothing is fed to a run that was forgotten",
        f"{SCRIPTS}/submit.lua",
        "if not is_known(run) then return 'unknown' end\n",
        "",
        CLOSED,
    ),
    Guard(
        "nothing is told to a run that was forgotten",
        f"{SCRIPTS}/tell.lua",
        "if not is_known(ARGV[2]) then return 0 end\n",
        "",
        CLOSED,
    ),
    Guard(
        "a closed run that cannot be forgotten is passed over",
        "orchestrator/queues/runs.py",
        "                self._passed_over += 1\n",
        "                pass\n",
        CLOSED,
    ),
    Guard(
        "jobs of a closed run are stopped once its time is over",
        f"{SCRIPTS}/forget.lua",
        "    stop_attempt(job, 'the run was closed')\n",
        "",
        CLOSED,
    ),
    Guard(
        "ids of prompts that are gone leave by their age",
        f"{SCRIPTS}/conclude.lua",
        "  call_with('SREM', of_run(run, 'fed'), old)\n",
        "",
        CLOSED,
    ),
)
