"""The totals of sandboxes where there are no control groups."""

import threading
from collections.abc import Iterator

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.command import SandboxLimits
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.settings import SandboxSettings
from agent_server.sandbox.totals import SandboxTotals
from agent_server.sandbox.watcher import Watcher

PATIENCE_SECONDS = 10.0
TOTALS = SandboxTotals(memory_bytes=96 << 20, processes=40, disk_bytes=64 << 20, inodes=2000)


@pytest.fixture(scope="module")
def maker() -> Iterator[Bubblewrap]:
    """Makes sandboxes on a machine that lets nobody make control groups."""

    def refused(_: object) -> None:
        raise SandboxUnavailable("this user may not make groups")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agent_server.sandbox.provider.find_cgroups", refused)
        made = Bubblewrap(SandboxSettings(limits=SandboxLimits(processes=100), totals=TOTALS))
    yield made
    made.close()


@pytest.fixture
def sandbox(maker: Bubblewrap) -> Iterator[Sandbox]:
    with maker.open(SandboxNeeds()) as opened:
        yield opened


HOLD = "/usr/bin/python3 -c 'import time; held = bytearray({} << 20); time.sleep(60)'"
HOARD = """
import os, time
for each in range(8):
    os.write(os.memfd_create(str(each)), b"x" * (20 << 20))
time.sleep(60)
"""
EXCESSES = {
    "memory": (HOLD.format(200), TOTALS.too_much_memory),
    "memory of many": (
        f"for each in 1 2 3 4; do {HOLD.format(40)} & done; wait",
        TOTALS.too_much_memory,
    ),
    "memory in files": (
        "head -c 40M /dev/zero > /tmp/a; cp /tmp/a /dev/shm; cp /tmp/a .; sleep 60",
        TOTALS.too_much_memory,
    ),
    "memory that no process maps": (f"/usr/bin/python3 -c '{HOARD}'", TOTALS.too_much_memory),
    "processes": ("for each in {1..60}; do sleep 60 & done; wait", TOTALS.too_many_processes),
    "files": ("touch {1..1500} /tmp/{1..1500}; sleep 60", TOTALS.too_many_files),
}


@pytest.mark.parametrize("of", EXCESSES)
def test_what_exceeds_a_total_is_killed_with_the_reason(sandbox: Sandbox, of: str) -> None:
    script, reason = EXCESSES[of]
    result = sandbox.run(["/bin/bash", "-c", script], deadline_seconds=20)
    assert result.exceeded == reason
    assert result.output.endswith(f"\n[killed: {reason}]\n")
    assert not result.timed_out


def test_a_session_that_exceeds_a_total_is_begun_anew(sandbox: Sandbox) -> None:
    result = sandbox.bash("touch {1..3000}; sleep 60", deadline_seconds=20)
    assert result.exceeded == TOTALS.too_many_files
    assert result.restarted
    sandbox.bash("rm *", deadline_seconds=20)
    assert sandbox.bash("echo fine", deadline_seconds=20).output.startswith("fine\n")


def test_a_sandbox_with_too_many_files_may_remove_them(sandbox: Sandbox) -> None:
    assert sandbox.bash("touch {1..3000}; sleep 60", deadline_seconds=20).exceeded
    slowly = "for each in {1..3000..200}; do rm -f $(seq $each $((each + 199))); sleep 0.05; done"
    assert sandbox.bash(f"{slowly}; ls | wc -l", deadline_seconds=20).output.startswith("0\n")


def test_what_is_left_in_the_background_is_stopped_too(sandbox: Sandbox) -> None:
    sandbox.bash("(sleep 0.1; touch {1..3000}; sleep 60) &> /dev/null &", deadline_seconds=20)
    pid = sandbox.bash("echo $!", deadline_seconds=20).output.strip()
    result = sandbox.bash(f"while kill -0 {pid}; do sleep 0.05; done", deadline_seconds=20)
    assert result.restarted
    assert result.exceeded == TOTALS.too_many_files


def test_a_sandbox_within_its_totals_is_left_alone(sandbox: Sandbox) -> None:
    script = "touch {1..100}; sleep 0.5; echo done"
    assert sandbox.run(["/bin/bash", "-c", script], deadline_seconds=20).output == "done\n"


def test_memory_that_nobody_would_count_is_refused(sandbox: Sandbox) -> None:
    code = (
        "import ctypes, os\n"
        "ctypes.CDLL(None, use_errno=True).shmget(0, 4096, 0o600)\n"
        "print(os.strerror(ctypes.get_errno()))"
    )
    result = sandbox.run(["/usr/bin/python3", "-c", code], deadline_seconds=20)
    assert result.output == "Function not implemented\n"


def test_it_is_said_who_holds_the_totals(maker: Bubblewrap) -> None:
    assert maker.totals_held_by == "a watcher (this user may not make groups)"


class SlowSandbox:
    """A sandbox that, asked whether it is busy, answers only once it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    @property
    def busy(self) -> bool:
        self.asked.set()
        self.may_answer.wait(2 * PATIENCE_SECONDS)
        return False

    def processes(self) -> tuple[int, ...]:
        return ()

    def filled(self) -> tuple[int, int]:
        return 0, 0

    def overrun(self, reason: str) -> None:
        pass


def test_a_sandbox_is_forgotten_while_it_is_looked_at() -> None:
    watcher, sandbox = Watcher(TOTALS, counts_processes=False), SlowSandbox()
    watcher.watch(sandbox)
    assert sandbox.asked.wait(PATIENCE_SECONDS)
    forgetting = threading.Thread(target=watcher.forget, args=(sandbox,), daemon=True)
    forgetting.start()
    forgetting.join(PATIENCE_SECONDS)
    stuck = forgetting.is_alive()
    sandbox.may_answer.set()
    watcher.close()
    assert not stuck


class BrokenSandbox(SlowSandbox):
    """A sandbox that cannot be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_again = threading.Event()

    @property
    def busy(self) -> bool:
        (self.asked_again if self.asked.is_set() else self.asked).set()
        raise OSError("no such process")


def test_a_sandbox_that_cannot_be_looked_at_ends_no_watch() -> None:
    watcher, sandbox = Watcher(TOTALS, counts_processes=False), BrokenSandbox()
    watcher.watch(sandbox)
    try:
        assert sandbox.asked_again.wait(PATIENCE_SECONDS)
    finally:
        watcher.close()
