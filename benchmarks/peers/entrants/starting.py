"""Start of the processes of an entrant, without a package."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

START_SECONDS = 240.0
STOP_SECONDS = 20.0
_PROBE_SECONDS = 0.2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def process(command: Sequence[str], directory: Path, **variables: str) -> Iterator[int]:
    """The id of a process in this directory, which ends with the block, and all of its group."""
    environment = {**os.environ, **variables}
    started = subprocess.Popen(command, cwd=directory, env=environment, start_new_session=True)
    try:
        yield started.pid
    finally:
        started.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"the service was not ready after {START_SECONDS:g} s")
        time.sleep(_PROBE_SECONDS)
