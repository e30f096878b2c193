"""The guards that stand in the moves of agent servers: whom to wait for, to trust and to blame."""

from tests.guards.guard import Guard

OPERATIONS = "tests/orchestrator/test_operations.py"
SILENCE = "tests/orchestrator/test_silence.py"
SCRIPTS = "orchestrator/queues/scripts"

GUARDS_OF_SERVERS = (
    Guard(
        "a registration may be repeated",
        f"{SCRIPTS}/register.lua",
        "if ARGV[6] == '1' and",
        "if false and",
        "tests/orchestrator/test_registration.py",
    ),
    Guard(
        "a server that cannot be called is quarantined",
        f"{SCRIPTS}/unreached.lua",
        "distrust(server, ",
        "local _ = (",
        "tests/orchestrator/test_unreached.py",
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
        "  if may_be_offered(slot) then",
        "  if true then",
        OPERATIONS,
    ),
    Guard(
        "nobody is judged by a time in which nobody looked",
        f"{SCRIPTS}/expire.lua",
        "if at < looked_at or at - looked_at > lease_seconds / 2 then renew() end\n",
        "",
        SILENCE,
    ),
    Guard(
        "a server that was heard of since has not ended",
        f"{SCRIPTS}/expire.lua",
        "    if redis.call('ZSCORE', key('seen'), ARGV[i]) == ARGV[i + 1] then",
        "    if redis.call('ZSCORE', key('seen'), ARGV[i]) then",
        SILENCE,
    ),
    Guard(
        "a silence of most servers is not held against their jobs",
        f"{SCRIPTS}/expire.lua",
        "    if common then",
        "    if false then",
        SILENCE,
    ),
    Guard(
        "a job is not excused for ever",
        f"{SCRIPTS}/_history.lua",
        "job, 1) > MAX_EXCUSED then",
        "job, 1) < 0 then",
        SILENCE,
    ),
    Guard(
        "a lost job does not wait for ever for another server",
        f"{SCRIPTS}/_leasing.lua",
        "  if now() > tonumber(string.match(tried, '^%S+')) + lease_seconds then return",
        "  if false then return",
        SILENCE,
    ),
    Guard(
        "only different servers count against a job that loses them",
        f"{SCRIPTS}/_history.lua",
        "  if again then return nil end\n",
        "",
        OPERATIONS,
    ),
    Guard(
        "a lost job is given to another server",
        f"{SCRIPTS}/_leasing.lua",
        "  while job and must_run_elsewhere(run, kind, job, server, lease_seconds) do",
        "  while false do",
        OPERATIONS,
    ),
)
