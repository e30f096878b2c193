"""The command lines with which Podman and Apptainer hold a sandbox, as pure functions.

Commands enter such a container as they enter a sandbox of bubblewrap, and are confined alike; only
the root and the process that holds it are made by these programs. Both need a server that runs as
an ordinary user, to whom the containers belong.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from agent_server.sandbox.command import HOLD, PACKAGE
from agent_server.sandbox.protocol import WORKSPACE

_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is to show."""

    name: str
    image: Path | None
    """Directory of its root, which it may change for itself; None for this machine's programs."""
    skeleton: Path
    """Directory to be the root of a container without an image, with the places for the rest."""
    shown: Sequence[tuple[Path, str]]
    """Directories to show read-only, and where."""
    package: Path
    tmp_bytes: int
    workspace_bytes: int


def podman(container: Container) -> list[str]:
    writable = container.image is not None
    shown = [
        option
        for source, place in _shown(container)
        for option in ("--volume", f"{source}:{place}:ro")
    ]
    return [
        *("podman", "run", "--rm", "--interactive", "--name", Path(container.name).name),
        *("--network", "none", "--hostname", "sandbox"),
        # Its processes are in the control group of the sandbox, which it has entered itself.
        *("--cgroups", "disabled"),
        *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
        # Commands mount a process table of their own, which a masked one forbids.
        *("--security-opt", "unmask=all"),
        *("--tmpfs", f"{WORKSPACE}:size={container.workspace_bytes},mode=0755"),
        *("--tmpfs", f"/tmp:size={container.tmp_bytes},mode=1777"),  # noqa: S108 - its own
        *("--shm-size", str(container.tmp_bytes)),
        *shown,
        # Read-only, podman would add a /run and a /var/tmp of any size, in memory.
        *(() if writable else ("--read-only", "--read-only-tmpfs=false")),
        *("--rootfs", f"{container.image}:O" if writable else str(container.skeleton)),
        *_holding(container),
    ]


def apptainer(container: Container) -> list[str]:
    shown = [
        option
        for source, place in _shown(container)
        for option in ("--bind", f"{source}:{place}:ro")
    ]
    return [
        *("apptainer", "--quiet", "exec", "--userns", "--containall", "--no-init"),
        *("--no-mount", "hostfs,bind-paths,home", "--net", "--network", "none"),
        *("--no-privs", "--hostname", "sandbox", "--scratch", WORKSPACE),
        *shown,
        *(() if container.image is None else ("--writable-tmpfs",)),
        str(container.image or container.skeleton),
        *_holding(container),
    ]


CONTAINERS: dict[str, Callable[[Container], list[str]]] = {
    "apptainer": apptainer,
    "podman": podman,
}
"""Makers of command lines, by the name of their program."""


def why_not_here(program: str) -> str:
    """The reason why containers of this program cannot be made here; empty if they may."""
    if shutil.which(program, path=_PROGRAMS) is None:
        return f"there is no {program} in {_PROGRAMS}"
    if os.geteuid() == 0:
        return f"containers of {program} need an agent server that is not root's"
    return ""


def with_home(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` with the few variables that it needs."""
    variables = {
        "HOME": str(Path.home()),
        "PATH": _PROGRAMS,
        "XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}",
    }
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *argv]


def make_skeleton(directory: Path) -> None:
    """Make the root of containers without an image: this machine's programs go over it."""
    for name in ("dev", "etc", "opt", "proc", "run", "sys", "tmp", "usr", "workspace"):
        (directory / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (directory / name).symlink_to(f"usr/{name}")


def _shown(container: Container) -> list[tuple[Path, str]]:
    machine = [(Path("/usr"), "/usr")] if container.image is None else []
    return [*machine, (container.package, PACKAGE), *container.shown]


def _holding(container: Container) -> list[str]:
    return ["/bin/bash", "-c", HOLD, container.name]
