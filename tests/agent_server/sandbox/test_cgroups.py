"""Control groups: those of this machine where it lets us make any, and directories that look like
those of either version."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.sandbox.cgroups import Cgroup, Cgroups, find_cgroups
from agent_server.sandbox.command import grouped
from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.totals import SandboxTotals
from tests.waiting import until

TOTALS = SandboxTotals(memory_bytes=64 << 20, processes=7, cpus=0.5)

TWO_OF_FORTY_MIB = """
import os
held = bytearray(40 << 20)
child = os.fork()
for page in range(0, len(held), 4096):
    held[page] = 1
child and os.wait()
"""


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Cgroup]:
    """A real group with these totals."""
    try:
        made = find_cgroups().make(f"rollyard-test-{os.getpid()}", TOTALS)
    except SandboxUnavailable as reason:
        pytest.xfail(f"this machine lets us make no control groups: {reason}")
    yield made
    assert made.remove() == ""


def run(group: Cgroup, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        grouped(argv, group.directories, None),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def unified(root: Path, *, enabled: str = "") -> Path:
    """A directory that looks like version 2, with this process in the group `ours`."""
    ours = root / "ours"
    ours.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu memory pids")
    (ours / "cgroup.controllers").write_text("cpu memory pids")
    (ours / "cgroup.subtree_control").write_text(enabled)
    (root / "self").write_text("0::/ours\n")
    return root


def find(root: Path) -> Cgroups:
    return find_cgroups(root=root, own=root / "self")


def test_a_command_is_in_the_group_before_it_begins(group: Cgroup) -> None:
    result = run(group, "/bin/cat", "/proc/self/cgroup")
    assert result.returncode == 0
    for directory in group.directories:
        assert f"/{directory.name}\n" in result.stdout


def test_the_memory_of_all_processes_together_is_limited_and_kills_are_counted(
    group: Cgroup,
) -> None:
    assert group.memory_kills == 0
    run(group, sys.executable, "-c", TWO_OF_FORTY_MIB)
    assert group.memory_kills >= 1


def test_the_number_of_processes_is_limited(group: Cgroup) -> None:
    forks = "import os\nfor count in range(9):\n    os.fork() or os.read(0, 1) or os._exit(0)"
    result = run(group, sys.executable, "-c", forks)
    assert "BlockingIOError" in result.stderr


def test_a_group_that_is_removed_takes_its_processes_along(group: Cgroup) -> None:
    process = subprocess.Popen(grouped(["/bin/sleep", "60"], group.directories, None))
    until("it is in the group", lambda: process.pid in group.processes)
    assert group.remove() == ""
    assert process.wait(5) != 0
    assert not any(directory.exists() for directory in group.directories)


def test_version_2_has_one_directory_with_all_limits(tmp_path: Path) -> None:
    found = find(unified(tmp_path)).below("server")
    group = found.make("sandbox", TOTALS)
    (directory,) = group.directories
    assert directory == tmp_path / "ours" / "server" / "sandbox"
    assert {file.name: file.read_text() for file in directory.iterdir()} == {
        "memory.max": str(64 << 20),
        "pids.max": "7",
        "cpu.max": "50000 100000",
    }


def test_in_version_2_the_controllers_are_handed_down(tmp_path: Path) -> None:
    find(unified(tmp_path)).below("server")
    for group in ("ours", "ours/server"):
        handed = (tmp_path / group / "cgroup.subtree_control").read_text()
        assert handed == "+memory +pids +cpu"


def test_in_version_2_kills_are_read_from_the_events(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 4\noom_kill 2\n")
    assert Cgroup([tmp_path]).memory_kills == 2


def test_a_group_without_the_controllers_is_refused_with_their_names(tmp_path: Path) -> None:
    root = unified(tmp_path)
    (root / "ours" / "cgroup.controllers").write_text("cpu")
    with pytest.raises(SandboxUnavailable, match="is not given the controllers memory, pids"):
        find(root)


def test_version_1_has_a_directory_for_each_controller(tmp_path: Path) -> None:
    for controller in ("memory/slurm/job_7", "pids", "cpu,cpuacct"):
        (tmp_path / controller).mkdir(parents=True)
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "self").write_text("3:cpu,cpuacct:/\n2:pids:/elsewhere\n1:memory:/slurm/job_7\n")
    group = find(tmp_path).make("sandbox", TOTALS)
    written = {
        f"{file.parent.parent.relative_to(tmp_path)}/{file.name}": file.read_text()
        for directory in group.directories
        for file in directory.iterdir()
    }
    assert written == {
        "memory/slurm/job_7/memory.limit_in_bytes": str(64 << 20),
        "pids/pids.max": "7",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/cpu.cfs_quota_us": "50000",
    }


def test_a_group_of_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    found = find(unified(tmp_path))
    found.make("sandbox", TOTALS)
    with pytest.raises(FileExistsError):
        found.make("sandbox", TOTALS)


def test_a_group_that_is_not_delegated_is_refused_with_what_to_do(tmp_path: Path) -> None:
    root = unified(tmp_path)
    (root / "ours" / "cgroup.subtree_control").unlink()
    (root / "ours" / "cgroup.subtree_control").mkdir()
    with pytest.raises(SandboxUnavailable, match="name a delegated control group"):
        find(root)


def test_with_a_tree_for_each_controller_no_single_group_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("1:memory:/\n")
    with pytest.raises(SandboxUnavailable, match="leave --cgroup out"):
        find_cgroups(tmp_path / "memory", root=tmp_path, own=tmp_path / "self")
