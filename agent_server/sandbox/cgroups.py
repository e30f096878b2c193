"""Control groups, which hold all processes of a sandbox together to its totals.

- Groups are made below the cgroup of this process, or below one that an operator names, as far as
  this user may. Version 2 has one tree, version 1 one for each controller.
"""

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.totals import SandboxTotals

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

_CONTROLLERS = ("memory", "pids", "cpu")
_ENABLE = " ".join(f"+{controller}" for controller in _CONTROLLERS)
_PERIOD_MICROSECONDS = 100_000
_REMOVAL_SECONDS = 2.0
_LOOK_SECONDS = 0.002


class Cgroup:
    """The control group of one sandbox, in each tree. Without directories it limits nothing."""

    def __init__(self, directories: Sequence[Path] = ()) -> None:
        self.directories = tuple(directories)

    @property
    def memory_kills(self) -> int:
        """Number of processes of this group that the kernel killed because its memory was full."""
        for directory in self.directories:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    lines = (directory / name).read_text().splitlines()
                    return sum(
                        int(line.split()[1]) for line in lines if line.startswith("oom_kill ")
                    )
        return 0

    @property
    def processes(self) -> set[int]:
        found: set[int] = set()
        for directory in self.directories:
            with contextlib.suppress(OSError):
                found.update(map(int, (directory / "cgroup.procs").read_text().split()))
        return found

    def remove(self) -> str:
        """Kill what is in the group, and remove it. Returns the reason if that failed, else an
        empty string."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while reason := self._why_not_removed():
            if time.monotonic() > deadline:
                return reason
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_LOOK_SECONDS)
        return ""

    def _why_not_removed(self) -> str:
        for directory in self.directories:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                return str(error)
        return ""


class Cgroups:
    """The directories below which groups are made, each with its controllers."""

    def __init__(self, parents: Mapping[Path, Sequence[str]], *, unified: bool) -> None:
        self._parents = dict(parents)
        self.unified = unified

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(self._parents)

    def below(self, name: str) -> "Cgroups":
        """The same, in a new group called `name`, in which no process runs. Raises `OSError`."""
        made: dict[Path, Sequence[str]] = {}
        for parent, controllers in self._parents.items():
            (parent / name).mkdir()
            made[parent / name] = controllers
            if self.unified:
                (parent / name / "cgroup.subtree_control").write_text(_ENABLE)
        return Cgroups(made, unified=self.unified)

    def make(self, name: str, totals: SandboxTotals) -> Cgroup:
        """A new group with these totals. Raises `OSError`."""
        group = Cgroup([parent / name for parent in self._parents])
        settings = _unified_settings(totals) if self.unified else _settings(totals)
        for parent, controllers in self._parents.items():
            (parent / name).mkdir()
            for file, value in settings.items():
                if file.split(".")[0] in controllers:
                    _write(parent / name / file, value)
        return group


def find_cgroups(
    named: Path | None = None, *, root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS
) -> Cgroups:
    """Where this process may make groups. Raises `SandboxUnavailable` with the reason where it may
    not."""
    paths = _own_paths(own)
    try:
        if (root / "cgroup.controllers").exists():
            found = _find_unified(named or root / paths[""].lstrip("/"))
        elif named is not None:
            raise SandboxUnavailable(
                f"{named} cannot be the control group of sandboxes: this machine has one for each "
                "controller",
                fix="leave --cgroup out",
            )
        else:
            found = _find_by_controller(root, paths)
        for directory in found.directories:
            _check_writable(directory)
    except OSError as error:
        raise SandboxUnavailable(
            str(error), fix="name a delegated control group, in which no process is, with --cgroup"
        ) from error
    return found


def _find_unified(parent: Path) -> Cgroups:
    available = (parent / "cgroup.controllers").read_text().split()
    if lacking := [each for each in _CONTROLLERS if each not in available]:
        raise SandboxUnavailable(f"{parent} is not given the controllers {', '.join(lacking)}")
    enabled = (parent / "cgroup.subtree_control").read_text().split()
    if not set(_CONTROLLERS) <= set(enabled):
        # Refused while processes are in the group itself.
        (parent / "cgroup.subtree_control").write_text(_ENABLE)
    return Cgroups({parent: _CONTROLLERS}, unified=True)


def _find_by_controller(root: Path, paths: Mapping[str, str]) -> Cgroups:
    parents: dict[Path, list[str]] = {}
    for controller in _CONTROLLERS:
        tree = (root / controller).resolve()  # cpu may be a link to cpu,cpuacct
        own = tree / paths.get(controller, "").lstrip("/")
        # In a container the path may be the host's, and the tree begin at the container's own.
        parents.setdefault(own if own.is_dir() else tree, []).append(controller)
    return Cgroups(parents, unified=False)


def _own_paths(own: Path) -> dict[str, str]:
    """The path of this process's group for each controller; for version 2, the name is empty."""
    lines = (line.split(":", 2) for line in own.read_text().splitlines())
    return {name: path for _, names, path in lines for name in names.split(",")}


def _check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK):
        raise SandboxUnavailable(f"this user may not make groups in {directory}")


def _counts(file: Path) -> dict[str, str]:
    """The lines of a file of names and numbers."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: words[1] for words in lines}


def _settings(totals: SandboxTotals) -> dict[str, str]:
    memory = str(totals.memory_bytes)
    return {
        "memory.limit_in_bytes": memory,
        "memory.memsw.limit_in_bytes": memory,  # after the one before, which must not be larger
        "pids.max": str(totals.processes),
        "cpu.cfs_period_us": str(_PERIOD_MICROSECONDS),
        "cpu.cfs_quota_us": str(int(totals.cpus * _PERIOD_MICROSECONDS)),
    }


def _unified_settings(totals: SandboxTotals) -> dict[str, str]:
    return {
        "memory.max": str(totals.memory_bytes),
        "memory.swap.max": "0",
        "pids.max": str(totals.processes),
        "cpu.max": f"{int(totals.cpus * _PERIOD_MICROSECONDS)} {_PERIOD_MICROSECONDS}",
    }


def _write(file: Path, value: str) -> None:
    if "sw" in file.name and not file.exists():
        return  # this kernel counts no swap
    file.write_text(value)
