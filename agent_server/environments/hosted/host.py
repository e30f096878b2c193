"""The server's side of the zygote: starts it, asks it for processes, starts it again if it dies.

- There is no zygote where there is no environment of another package.
- The zygote is a fresh interpreter with a handful of environment variables: it inherits no token,
  no address and no descriptor of this process.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import structlog

from agent_server.environments.hosted.episode import (
    HostedEpisode,
    HostUnavailable,
    Line,
    is_gone,
)
from agent_server.environments.hosted.frames import (
    BadFrame,
    Bear,
    Load,
    LoadedFrame,
    receive_packet,
    send_packet,
)
from agent_server.environments.protocol import EnvironmentKind, Needs
from rollyard.errors import InvalidMessage, LaunchError

log = structlog.get_logger()

_IMPORT_SECONDS = 120.0
_REQUEST_SECONDS = 5.0
_END_SECONDS = 5.0
_KEPT_VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("HF_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE", "OMP_NUM_THREADS"),
)
"""What code may need to find its files; nothing else of our environment is its business."""


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of one attempt's environment may use."""

    data_bytes: int = 4 << 30
    """Writable memory of each process."""
    processes: int = 256
    """Together with threads."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise InvalidMessage(
                    f"environment limit {name} must be positive, got {getattr(self, name)}"
                )


class EnvironmentHost:
    def __init__(self, entry_points: Sequence[EntryPoint], settings: HostSettings) -> None:
        """Import the environments. Raises `LaunchError` when one cannot be imported."""
        self._load = Load(
            entry_points=tuple((point.name, point.value) for point in entry_points),
            data_bytes=settings.data_bytes,
            processes=settings.processes,
        )
        self._lock = threading.Lock()
        """Held for as long as a zygote takes to start."""
        self._counting = threading.Lock()
        self._stuck: list[int] = []
        """Descriptors of processes that were killed and have not ended."""
        self._closed = False
        self._zygote = _Zygote(self._load) if entry_points else None

    @property
    def stuck(self) -> int:
        """How many environments were killed and live on, held up by the kernel."""
        with self._counting:
            gone = {process for process in self._stuck if is_gone(process, 0)}
            for process in gone:
                os.close(process)
            self._stuck = [process for process in self._stuck if process not in gone]
            return len(self._stuck)

    def environments(self) -> dict[str, EnvironmentKind]:
        """Every environment by name."""
        needs = {} if self._zygote is None else self._zygote.needs
        return {
            name: EnvironmentKind(
                partial(HostedEpisode, partial(self._ask, name), self._note_stuck), needs[name]
            )
            for name, _ in self._load.entry_points
        }

    def close(self) -> None:
        """End the zygote, and with it every process of every environment."""
        with self._lock:
            self._closed = True
            if self._zygote is not None:
                self._zygote.close()

    def _ask(self, name: str) -> Line:
        """Ask for a process of this environment; the zygote tells over the line what came of it."""
        with ExitStack() as ours, ExitStack() as theirs:
            environment, its_end = _pair(socket.SOCK_STREAM, ours, theirs)
            report, zygotes_end = _pair(socket.SOCK_SEQPACKET, ours, theirs)
            reading, writing = os.pipe()
            ours.callback(os.close, reading)
            theirs.callback(os.close, writing)
            with self._lock:
                self._send(name, its_end.fileno(), writing, zygotes_end.fileno())
            ours.pop_all()
        return Line(environment, report, reading)

    def _send(self, name: str, *descriptors: int) -> None:
        if self._closed or self._zygote is None:
            raise HostUnavailable("this agent server is shutting down")
        try:
            return self._zygote.ask(name, *descriptors)
        except OSError as error:
            log.error("zygote_lost", reason=str(error))
            self._zygote.close()
        try:
            self._zygote = _Zygote(self._load)
            return self._zygote.ask(name, *descriptors)
        except (OSError, LaunchError) as error:
            raise HostUnavailable(f"the environments cannot be started again: {error}") from error

    def _note_stuck(self, process: int) -> None:
        log.error("environment_lives_on", reason="it was killed and has not ended")
        with self._counting:
            self._stuck.append(process)


class _Zygote:
    """One process of that name."""

    def __init__(self, load: Load) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "agent_server.environments.hosted.zygote"),
                    str(theirs.fileno()),
                ],
                stdin=subprocess.PIPE,  # which ends with this process, however that ends
                env=_environment(),
                pass_fds=(theirs.fileno(),),
            )
        try:
            self.needs = self._await_imports(load)
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, *descriptors: int) -> None:
        """Raises `OSError` when it is gone or does not listen."""
        send_packet(self._control, Bear(name), *descriptors)

    def close(self) -> None:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_END_SECONDS)  # at the end of its input it ends

    def _await_imports(self, load: Load) -> dict[str, Needs]:
        """What the environments need, by name."""
        self._control.settimeout(_IMPORT_SECONDS)
        try:
            send_packet(self._control, load)
            answer, _ = receive_packet(self._control)
            loaded = (
                answer if isinstance(answer, LoadedFrame) else LoadedFrame("their process ended")
            )
        except (OSError, BadFrame) as error:
            loaded = LoadedFrame(str(error) or "no answer")
        if loaded.problem:
            raise LaunchError(
                f"cannot load the environments: {loaded.problem}",
                fix="fix or uninstall the package that declares it in rollyard.environments",
            )
        self._control.settimeout(_REQUEST_SECONDS)
        return loaded.needs


def _pair(
    kind: socket.SocketKind, ours: ExitStack, theirs: ExitStack
) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    return ours.enter_context(one), theirs.enter_context(other)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    # what this process would import, that one imports, wherever it was found
    return kept | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
