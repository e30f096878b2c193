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
    Guard(
        "the NeMo-Gym door tries again what the infrastructure failed",
        "agent_server/nemo_gym/door.py",
        "range(1, self._settings.attempts + 1)",
        "range(1, 2)",
        "tests/agent_server/nemo_gym/test_contract.py",
    ),
    Guard(
        "the NeMo-Gym door blames a row for what is the row's",
        "agent_server/nemo_gym/door.py",
        "            if result.blame is Blame.ROW:\n",
        "            if False:\n",
        "tests/agent_server/nemo_gym/test_contract.py",
    ),
    Guard(
        "the NeMo-Gym door waits for LLM servers",
        "agent_server/nemo_gym/door.py",
        "                if time.monotonic() > give_up:\n",
        "                if True:\n",
        "tests/agent_server/nemo_gym/test_process.py",
    ),
    Guard(
        "the items of the NeMo-Gym door have the tokens of the last sequence alone",
        "agent_server/nemo_gym/trajectories.py",
        "sampled[len(sampled) - last :]",
        "sampled[:last]",
        "tests/agent_server/nemo_gym/test_trajectories.py",
    ),
    Guard(
        "the NeMo-Gym door refuses what would change what is sampled",
        "agent_server/nemo_gym/rows.py",
        "(asked | _extra_body(asked)).items()",
        "asked.items()",
        "tests/agent_server/nemo_gym/test_contract.py",
    ),
    Guard(
        "the NeMo-Gym door leaves loopback without tokens only if that is said twice",
        "agent_server/nemo_gym/options.py",
        'flags.host if flags.insecure else "127.0.0.1"',
        "flags.host",
        "tests/agent_server/nemo_gym/test_process.py",
    ),
)
