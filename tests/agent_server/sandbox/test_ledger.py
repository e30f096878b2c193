"""What a server has outside its sandboxes, and what is left of it once it is gone."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent_server.sandbox import ledger, removal
from agent_server.sandbox.cgroups import Cgroups
from agent_server.sandbox.ledger import SandboxLedger
from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.totals import SandboxTotals
from tests.llm_fixtures import ROOT
from tests.waiting import until

SERVER = """
import sys
from pathlib import Path
from agent_server.sandbox.cgroups import Cgroups
from agent_server.sandbox.ledger import SandboxLedger
from agent_server.sandbox.totals import SandboxTotals
groups = Cgroups({Path(sys.argv[1]): ("memory",)}, unified=False)
ledger = SandboxLedger(SandboxTotals(), groups)
(ledger.enter().directory / "file").write_text("x")
print(ledger.home, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def groups(tmp_path: Path) -> Cgroups:
    """Directories that stand for control groups."""
    return Cgroups({tmp_path: ("pids",)}, unified=False)


@pytest.fixture
def opened(own_tmp: Path) -> Iterator[SandboxLedger]:
    made = SandboxLedger(SandboxTotals(), None)
    yield made
    made.close()
    assert list(own_tmp.iterdir()) == []


def test_a_sandbox_has_a_directory_that_only_its_owner_enters(opened: SandboxLedger) -> None:
    entry = opened.enter()
    assert entry.directory.parent == opened.home
    assert entry.directory.stat().st_mode & 0o777 == 0o700


def test_what_is_struck_off_is_removed(opened: SandboxLedger) -> None:
    entry = opened.enter()
    (entry.directory / "deep").mkdir(mode=0o000)
    opened.strike(entry)
    until("it is removed", lambda: not entry.directory.exists())
    assert opened.left == 0


def test_the_control_group_has_the_name_of_the_directory(
    tmp_path: Path, groups: Cgroups, own_tmp: Path
) -> None:
    made = SandboxLedger(SandboxTotals(processes=9), groups)
    entry = made.enter()
    assert entry.cgroup.directories == (tmp_path / made.home.name / entry.directory.name,)
    assert (entry.cgroup.directories[0] / "pids.max").read_text() == "9"
    (entry.cgroup.directories[0] / "pids.max").unlink()  # a real group has files that go with it
    made.strike(entry)
    made.close()
    assert [*own_tmp.iterdir(), *tmp_path.iterdir()] == []


def test_a_directory_that_cannot_be_made_is_this_servers_failure(opened: SandboxLedger) -> None:
    opened.home.rename(opened.home.with_name("gone"))
    with pytest.raises(SandboxUnavailable, match="cannot enter a sandbox"):
        opened.enter()
    opened.home.with_name("gone").rename(opened.home)


def test_what_cannot_be_removed_is_counted_and_tried_again(
    opened: SandboxLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_RETRY_SECONDS", 0.05)
    entry = opened.enter()
    (entry.directory / "file").write_text("x")
    with monkeypatch.context() as broken:
        broken.setattr(removal, "_REMOVE", "echo no >&2; exit 1")
        opened.strike(entry)
        until("the removal fails", lambda: opened.left == 1)
    until("the removal is tried again", lambda: opened.left == 0)
    assert not entry.directory.exists()


def test_what_a_killed_server_left_is_reaped_by_the_next_and_a_living_ones_home_is_not(
    tmp_path: Path, own_tmp: Path
) -> None:
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={"TMPDIR": str(own_tmp)},
        )
        for _ in range(2)
    ]
    try:
        homes = []
        for server in servers:
            assert server.stdout is not None
            homes.append(Path(server.stdout.readline().decode().strip()))
        for group in tmp_path.glob("*/*/*"):
            group.unlink()  # a real group has files that go with it
        stray = subprocess.Popen(
            ["/bin/sh", "-c", "read line", "--die-with-parent", f"{homes[0]}/sandbox-x"],
            stdin=subprocess.PIPE,
        )
        (caretaker,) = psutil.Process(servers[0].pid).children()
        caretaker.kill()  # as by what ends all processes of a service
        servers[0].send_signal(signal.SIGKILL)
        servers[0].wait(10)
        made = SandboxLedger(SandboxTotals(), None)
        until("the dead one's home goes", lambda: not homes[0].exists())
        assert stray.wait(5) == -signal.SIGKILL
        assert [group.name for group in tmp_path.iterdir()] == [homes[1].name]
        assert next(homes[1].glob("sandbox-*/file")).read_text() == "x"
        made.close()
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def test_a_ledger_that_is_closed_leaves_no_caretaker(own_tmp: Path) -> None:
    before = set(psutil.Process().children())
    made = SandboxLedger(SandboxTotals(), None)
    (caretaker,) = set(psutil.Process().children()) - before
    made.close()
    assert not caretaker.is_running()
