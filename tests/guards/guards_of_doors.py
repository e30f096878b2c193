"""The guards that share an agent server between its door and the orchestrator."""

from tests.guards.guard import Guard

SHARED_SLOTS = "agent_server/jobs/shared_slots.py"
SHARING = "tests/agent_server/test_shared_slots.py"

GUARDS_OF_DOORS = (
    Guard(
        "of shared slots a side takes none beyond its part",
        SHARED_SLOTS,
        "side.busy < self.part_of(side) and ",
        "",
        SHARING,
    ),
    Guard(
        "of shared slots no more are given than there are",
        SHARED_SLOTS,
        " and self._busy < self.size:",
        ":",
        SHARING,
    ),
    Guard(
        "of shared slots the orchestrator can ask for more",
        SHARED_SLOTS,
        "        self.orchestrators.spare = jobs_ahead(self.size)\n",
        "",
        SHARING,
    ),
    Guard(
        "of shared slots those that are lent are not leased",
        "orchestrator/queues/scripts/heartbeat.lua",
        "  keep('lent_slots', lent > 0 and lent)\n",
        "",
        "tests/orchestrator/test_lost_slots.py",
    ),
    Guard(
        "the limit of a call counts INIT",
        "agent_server/jobs/stage_limits.py",
        "attempt.timings.init_seconds if stage is Stage.RUN else 0.0",
        "0.0",
        "tests/agent_server/test_stage_limits.py",
    ),
)
