"""Which tests run in one process, and what begins first, when they run in several."""

from xdist.scheduler import LoadScopeScheduling

VLLM = "vllm"
LASTING = "lasting"
FAULTS = "tests/faults/"
FUZZ = "tests/fuzz/"
QUEUE_MACHINE = "tests/orchestrator/test_queue_machine.py"

ON_THE_LASTING_DEPLOYMENT = (
    "tests/e2e/test_canary.py",
    "tests/e2e/test_failing_rows.py",
    "tests/e2e/test_readme.py",
    "tests/e2e/test_rollout.py::test_a_batch_of_the_scripted_policy_is_exact",
    "tests/launch/test_up.py",
)
"""What uses `lasting_deployment`."""

SLOWEST = (
    VLLM,
    "tests/slurm/",
    "test_training_goes_on_when_real_llm_servers_start_again",
    "test_training_goes_on_whatever_is_killed_and_started_again",
    "test_the_orchestrator_goes_on_after_a_kill_at_any_point",
    "tests/e2e/",
    LASTING,
    QUEUE_MACHINE,
    "tests/faults/test_own_silence.py",
    "tests/faults/test_drain_on_sigterm.py",
    "tests/faults/test_cancel_race.py",
    "tests/faults/test_crowded_doors.py",
    "tests/agent_server/test_bad_environments.py",
    "tests/agent_server/environments/swe/test_instances.py",
    "tests/agent_server/rewards/test_swe_tampering.py",
    "tests/serving/test_worker.py",
)
"""Parts of their names: what takes twenty seconds or more, the longest first. Begun last, it would
keep one process busy when the others have nothing left."""


def scope_of(test: str) -> str:
    """What is named after vLLM needs the real one, which costs most of a minute and 3 GB: one
    process has it. A deployment costs twelve seconds of a core: one is shared. Faults have one
    each. A gateway costs five: one is fuzzed. All others share what their module starts, but the
    parts of the queue machine."""
    if VLLM in test:
        return VLLM
    if test.startswith(ON_THE_LASTING_DEPLOYMENT):
        return LASTING
    if test.startswith(FUZZ):
        return FUZZ
    return test if test.startswith((FAULTS, QUEUE_MACHINE)) else test.partition("::")[0]


def turn_of(test: str) -> int:
    """The lower, the sooner it begins."""
    scope = scope_of(test)
    return next((turn for turn, part in enumerate(SLOWEST) if part in scope), len(SLOWEST))


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
