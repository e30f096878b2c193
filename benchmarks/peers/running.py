"""The running program of an entrant: what it says, what it has computed, and its end."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue

import msgspec
import psutil

from benchmarks.peers.services import ROOT, Entrant
from launch.logs import last_line
from rollyard.codec import learnt

STOP_SECONDS = 30.0
WORKER_SECONDS = 30.0
"""Time in which there is a worker to kill."""
_LOOK_SECONDS = 0.1
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "RAY_raylet_start_wait_time_s": "180",
    "RAY_agent_register_timeout_ms": "180000",
}
"""Variables by which packages ask nobody outside of this machine, and are patient with it."""


class EntrantLine(msgspec.Struct, frozen=True):
    """What an entrant says (`entrants/entrant.py`)."""

    workers: tuple[int, ...] = ()
    named: str = ""
    question: int | None = None
    reward: float | None = None
    failed: str = ""
    done: bool = False


class Running:
    """Use it as a context manager: it ends with all that it started."""

    def __init__(self, service: Entrant, options: tuple[str, ...], directory: Path) -> None:
        self.name = service.name
        self._log = directory / "service.log"
        self._lines: Queue[EntrantLine | None] = Queue()
        """What it said and nobody has read; None once it says no more."""
        self._done = False
        self._family: dict[int, psutil.Process] = {}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [service.python, "-m", service.module, *options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **VARIABLES},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._done:  # it ends what it started
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        for process in self._all():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def begin(self) -> None:
        """Let it play."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"play\n")
        self._process.stdin.flush()

    def line(self, seconds: float) -> EntrantLine | None:
        """The next line, or None if none comes in this time."""
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except Empty:
            return None
        if line is None:
            self._lines.put(None)
        else:
            self._done = line.done
        return line

    def has_ended(self) -> bool:
        """Whether it will say no more."""
        return not self._lines.empty() and self._lines.queue[0] is None

    def last_words(self) -> str:
        return last_line(self._log)

    def seconds_computed(self) -> float:
        """CPU seconds, so far, of all its processes, those that have ended included."""
        seconds = 0.0
        for process in self._all():
            with suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:4])
        return seconds

    def kill_worker(self, ready: EntrantLine) -> None:
        """Kill one of the workers, with the group that it leads, as soon as there is one."""
        deadline = time.monotonic() + WORKER_SECONDS
        while not self._kill_worker(ready) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _kill_worker(self, ready: EntrantLine) -> bool:
        for process in self._all():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if process.pid in ready.workers or (
                    ready.named and ready.named in " ".join(process.cmdline())
                ):
                    if os.getpgid(process.pid) == process.pid:
                        os.killpg(process.pid, signal.SIGKILL)
                    process.kill()
                    return True
        return False

    def _all(self) -> list[psutil.Process]:
        """All its processes that are known: those whose parents have ended are remembered."""
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(self._process.pid)
            for each in (program, *program.children(recursive=True)):
                self._family[each.pid] = each
        return [each for each in self._family.values() if each.is_running()]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for said in self._process.stdout:
            self._lines.put(msgspec.json.decode(said, type=learnt(EntrantLine)))
        self._lines.put(None)
