"""The guards of placement: a Job goes to a server that can run it, and nothing waits for others."""

from tests.guards.guard import Guard

SCRIPTS = "orchestrator/queues/scripts"
PLACEMENT = "tests/orchestrator/test_placement.py"
SHARES = "tests/orchestrator/test_shares.py"
NEVER_OFFERED = "tests/rollyard/test_never_offered.py"

GUARDS_OF_PLACEMENT = (
    Guard(
        "a job goes to a server that has its environment",
        f"{SCRIPTS}/_classes.lua",
        "if has == 1 and has_tags",
        "if has_tags",
        PLACEMENT,
    ),
    Guard(
        "a job goes to a server that has its tags",
        f"{SCRIPTS}/_classes.lua",
        "    if redis.call('SISMEMBER', key('tags:' .. class), tag) == 0 then return false end\n",
        "",
        PLACEMENT,
    ),
    Guard(
        "what a server had is waited for after it has left",
        f"{SCRIPTS}/_tasks.lua",
        "  call_with('SADD', key('known_environments'), environments)\n",
        "",
        PLACEMENT,
    ),
    Guard(
        "what goes on keeps a name that no server had from ending the wait",
        "rollyard/never_offered.py",
        "if not status.never_offered or others or offered != self._offered:",
        "if not status.never_offered:",
        NEVER_OFFERED,
    ),
    Guard(
        "what waits is found by a class of servers that is new",
        f"{SCRIPTS}/_tasks.lua",
        "  index_again()\n  return class\n",
        "  return class\n",
        PLACEMENT,
    ),
    Guard(
        "what waits is found to be nobody's once the last server of its class is gone",
        f"{SCRIPTS}/_tasks.lua",
        "redis.call('DEL', key(name .. class)) end\n  index_again()\n",
        "redis.call('DEL', key(name .. class)) end\n",
        PLACEMENT,
    ),
    Guard(
        "a kind is ranked again when its first job is taken",
        f"{SCRIPTS}/_tasks.lua",
        "  if not first or group_of(first) ~= group_of(job) then rank(run, kind, first) end\n",
        "",
        PLACEMENT,
    ),
    Guard(
        "a kind is ranked again when its first job is dropped",
        f"{SCRIPTS}/_tasks.lua",
        "  rank(run, kind, redis.call('LINDEX', tasks, 0) or nil)\n",
        "",
        PLACEMENT,
    ),
    Guard(
        "the least able server comes first",
        f"{SCRIPTS}/_tasks.lua",
        "#tags * LEAST_OF_TAGS + #environments, class)",
        "0, class)",
        PLACEMENT,
    ),
    Guard(
        "a job waits for no server that could not run it",
        f"{SCRIPTS}/_leasing.lua",
        "redis.call('HEXISTS', key('held'), other) == 0 and server_can_run(other, kind) then",
        "redis.call('HEXISTS', key('held'), other) == 0 then",
        PLACEMENT,
    ),
    Guard(
        "places ahead count where they might have a job",
        f"{SCRIPTS}/_servers.lua",
        "      if overlap(class, other) then aheads",
        "      if true then aheads",
        PLACEMENT,
    ),
    Guard(
        "parked jobs give way where their slot helps",
        f"{SCRIPTS}/lend.lua",
        "redis.call('ZRANGE', key('waiting:' .. class), 0, -1) or {}",
        "redis.call('SMEMBERS', key('runs'))",
        PLACEMENT,
    ),
    Guard(
        "a run holds no more slots than it may",
        f"{SCRIPTS}/_leasing.lua",
        "fits(run, model) and slots_left(run) > 0 and job_for",
        "fits(run, model) and job_for",
        SHARES,
    ),
    Guard(
        "what runs held before decides between those that hold as many",
        f"{SCRIPTS}/_shares.lua",
        " + share.spent / SECONDS_OF_A_SLOT\n",
        "\n",
        SHARES,
    ),
    Guard(
        "the slots that a run holds decide whose turn it is",
        f"{SCRIPTS}/_shares.lua",
        "(share.held + 0.5) / share.weight",
        "0",
        SHARES,
    ),
    Guard(
        "what a run is owed has an end",
        f"{SCRIPTS}/_shares.lua",
        "    spent = math.max(spent, most_spent - CREDIT * SECONDS_OF_A_SLOT / weight)\n",
        "",
        SHARES,
    ),
    Guard(
        "parked jobs give way until shares are even, and no further",
        f"{SCRIPTS}/lend.lua",
        "(stood >= idle_seconds or holds_more(run, need.run))",
        "true",
        "tests/orchestrator/test_lending.py",
    ),
    Guard(
        "a run without a look-ahead waits for the slots that others hold",
        "orchestrator/demand.py",
        "    free = offer.free_slots or _slots_of_others(run, offer)\n",
        "    free = offer.free_slots\n",
        "tests/orchestrator/test_demand.py",
    ),
    Guard(
        "what no server can run keeps no prompt from being fed",
        "orchestrator/demand.py",
        "    offered = counters.jobs_queued - counters.jobs_unoffered\n",
        "    offered = counters.jobs_queued\n",
        "tests/orchestrator/test_demand.py",
    ),
    Guard(
        "what no server can run is not fed without end",
        "orchestrator/demand.py",
        "max(0, counters.jobs_unoffered - MAX_UNOFFERED_JOBS)",
        "0",
        "tests/orchestrator/test_demand.py",
    ),
    Guard(
        "jobs for busy servers leave idle ones their own",
        "orchestrator/demand.py",
        "max(enough - max(lacks, default=0), queued - MAX_QUEUED_PER_SLOT * slots)",
        "queued",
        "tests/orchestrator/test_demand.py",
    ),
    Guard(
        "jobs for busy servers are not fed without end",
        "orchestrator/demand.py",
        "max(enough - max(lacks, default=0), queued - MAX_QUEUED_PER_SLOT * slots)",
        "enough - max(lacks, default=0)",
        "tests/orchestrator/test_demand.py",
    ),
    Guard(
        "a feeder is woken for slots that nothing waits for",
        f"{SCRIPTS}/_tasks.lua",
        "  if any_lacks then\n",
        "  if false then\n",
        "tests/orchestrator/test_demand.py",
    ),
)
