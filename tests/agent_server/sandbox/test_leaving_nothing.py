"""Nothing of a sandbox is left on the machine: neither after its close, nor after its server's
death."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.cgroups import CGROUP_ROOT
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
from tests.llm_fixtures import ROOT
from tests.waiting import until

SANDBOXES = int(os.environ.get("ROLLYARD_SANDBOXES", "100"))
OPEN_AT_ONCE = 50
MARKER = "577.2156"
SERVER = f"""
import sys
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
maker = Bubblewrap(SandboxSettings())
opened = [maker.open(SandboxNeeds()) for _ in range({OPEN_AT_ONCE})]
for sandbox in opened:
    sandbox.bash("echo x > file; setsid sleep {MARKER} &> /dev/null &", deadline_seconds=20)
print(maker.ledger.home, flush=True)
sys.stdin.read()
"""


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def remains(home: Path) -> list[str]:
    """Processes, mounts, files and control groups of the server with this home."""
    processes = [
        f"process {each.pid}"
        for each in psutil.process_iter(["cmdline"])
        if any(str(home) in word or word == MARKER for word in each.info["cmdline"] or ())
    ]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]
    groups = [str(group / each) for group in groups_of(home) for each in below(group)]
    return [*processes, *mounts, *map(str, home.glob("sandbox-*")), *groups]


def groups_of(home: Path) -> list[Path]:
    """The control groups of the server with this home, whatever others make or remove meanwhile."""
    return [Path(at, home.name) for at, names, _ in os.walk(CGROUP_ROOT) if home.name in names]


def below(group: Path) -> list[str]:
    return next(os.walk(group), ("", [], []))[1]


def test_many_sandboxes_one_after_the_other_leave_nothing(own_tmp: Path) -> None:
    maker = Bubblewrap(SandboxSettings())
    descriptors = _open_files()
    for _ in range(SANDBOXES):
        with maker.open(SandboxNeeds()) as sandbox:
            sandbox.bash(
                f"mkdir -p a/b; echo x > a/b/c; sleep {MARKER} &> /dev/null &", deadline_seconds=10
            )
    until("everything of them is gone", lambda: not remains(maker.ledger.home), 10)
    assert _open_files() <= descriptors + 2
    maker.close()
    assert list(own_tmp.iterdir()) == []


def test_a_killed_server_leaves_nothing(own_tmp: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={"TMPDIR": str(own_tmp)},
    )
    try:
        assert server.stdout is not None
        home = Path(server.stdout.readline().decode().strip())
        assert len(remains(home)) > OPEN_AT_ONCE
        server.send_signal(signal.SIGKILL)
        server.wait(10)
        until("its home is removed", lambda: not home.exists())
        until("its last process has ended", lambda: not remains(home))
        assert not groups_of(home)
    finally:
        server.kill()
        server.communicate()
