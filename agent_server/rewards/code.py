"""The grader of programs: all tests of the row, in a sandbox that the policy never touched.

The program alone crosses into that sandbox. Expected results stay outside of it, where they are
compared (see `programs`).
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from agent_server.environments.hosted.containment import prepare_for_sandboxes
from agent_server.rewards.answers import last_program
from agent_server.rewards.program_tests import ProgramTests, program_tests
from agent_server.rewards.programs import Program
from agent_server.rewards.protocol import ScoreTask
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.settings import SandboxSettings
from rollyard.messages import Grade

NEEDS = SandboxNeeds(programs=("bash", "python3"))
MAX_PROGRAM_BYTES = 256 << 10
GRADING_SECONDS = 40.0
"""Limit on all tests together, less than the time that an agent server gives to EVAL."""
_TASK_SECONDS = 15.0
"""The same for a grader, less than the time that it has for a task."""

_TURN_SECONDS = 15.0
"""Limit on the wait for a turn; with the tests it still fits into EVAL."""

# As many programs as CPUs are tried at once, so that a time limit measures the program, not its
# neighbours.
_turns = threading.BoundedSemaphore(os.cpu_count() or 1)


def grade(task: ScoreTask) -> Grade:
    """Grade the last fenced program of a response, in a sandbox of this process."""
    tests = program_tests(task.ground_truth, task.extra_info)
    program = last_program(task.solution_str)
    if program is None:
        return no_program("the response has no fenced program")
    source = program.encode(errors="surrogatepass")
    with _sandboxes() as sandboxes, sandboxes.open(NEEDS) as sandbox:
        return grade_program(source, tests, sandbox, seconds=_TASK_SECONDS)


def grade_program(
    source: bytes, tests: ProgramTests, sandbox: Sandbox, *, seconds: float = GRADING_SECONDS
) -> Grade:
    """1.0 if the program passes all tests, in a sandbox that nothing has touched. Raises
    `SandboxUnavailable`."""
    if len(source) > MAX_PROGRAM_BYTES:
        return no_program(f"the program has more than {MAX_PROGRAM_BYTES} bytes")
    program, total = Program(source, tests, sandbox), len(tests.tests)
    passed, reason = 0, ""
    with _turn():
        deadline = time.monotonic() + seconds
        for number, test in enumerate(tests.tests, 1):
            trial = program.try_on(test, number, most_seconds=deadline - time.monotonic())
            passed += trial.passed
            if not trial.passed:
                reason = reason or f"test {number} of {total}: the program {trial.problem}"
            if trial.out_of_time:  # it would be in many, and all of them are already lost
                break
    return Grade(
        reward=float(passed == total),
        components={"passed": passed / total},
        metrics={"tests": total},
        reason=reason or f"the program passed all {total} tests",
    )


def no_program(reason: str) -> Grade:
    return Grade(reward=0.0, components={"passed": 0.0}, reason=reason)


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    if not _turns.acquire(timeout=_TURN_SECONDS):
        raise SandboxUnavailable(
            f"no program could be tried within {_TURN_SECONDS:g} s: the machine tries others",
            fix="give the machine fewer slots, or more CPUs",
        )
    try:
        yield
    finally:
        _turns.release()


@contextlib.contextmanager
def _sandboxes() -> Iterator[Bubblewrap]:
    """Sandboxes for one task: the process of a grader may be killed after any."""
    try:
        prepare_for_sandboxes()
    except OSError as error:
        raise SandboxUnavailable(f"no sandbox can be made for a grader: {error}") from error
    with contextlib.closing(Bubblewrap(SandboxSettings())) as sandboxes:
        yield sandboxes
