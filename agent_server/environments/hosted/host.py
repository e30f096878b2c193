"""The host of others' code: it starts the zygote, asks it for processes, and starts it again if it
dies.

- There is no zygote unless there is something to import. One of another Python starts with the
  first process that is asked for: what it imports may take seconds, and may never be needed.
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

import structlog

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.episode import HostedEpisode
from agent_server.environments.hosted.process import HostedProcess, HostUnavailable, Line
from agent_server.environments.protocol import EnvironmentKind, Needs
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.rewards.protocol import Rewards
from agent_server.sandbox.process import is_gone
from rollyard.errors import LaunchError

log = structlog.get_logger()

_ZYGOTE = "agent_server.environments.hosted.zygote"
_IMPORT_SECONDS = 120.0
_REQUEST_SECONDS = 5.0
_END_SECONDS = 5.0
_KEPT_VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("HF_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE", "OMP_NUM_THREADS"),
)
"""Variables that code may need to find its files. The zygote is given no others of this process."""

_HASH_SEED = "0"
"""Seed of the order of sets: the same row shall lead to the same episode on every server."""
_OUR_CODE = Path(__file__).parents[3]
_IN_ANOTHER_PYTHON = (
    f"import sys; sys.path.append(sys.argv.pop()); from {_ZYGOTE} import main; main()"
)
"""Program that starts a zygote in a Python that has not our code, with its own packages first."""


class ProcessHost:
    """Owns the zygote, and the descriptors of processes that could not be killed."""

    def __init__(
        self,
        entry_points: Sequence[EntryPoint],
        limits: ProcessLimits,
        *,
        what: str,
        serve: str,
        python: Path | None = None,
    ) -> None:
        """Import `what` the entry points name, such as environments. A process calls `serve`, named
        as in an entry point, with its end of the stream and the object that it was asked for.
        `python` is another interpreter to import them. Raises `LaunchError` when one cannot be
        imported."""
        self._what = what
        self._python = python
        self._load = frames.Load(
            entry_points=tuple((point.name, point.value) for point in entry_points),
            limits=limits,
            serve=serve,
        )
        self._lock = threading.Lock()
        """Lock that is held for as long as a zygote takes to start."""
        self._counting = threading.Lock()
        self._stuck: list[int] = []
        """Descriptors of processes that were killed and have not ended."""
        self._closed = False
        self._zygote = _Zygote(self._load, what) if entry_points and python is None else None

    @property
    def needs(self) -> dict[str, Needs]:
        """What each object needs, by name."""
        return {} if self._zygote is None else self._zygote.needs

    @property
    def stuck(self) -> int:
        """Number of processes that were killed and live on, held up by the kernel."""
        with self._counting:
            gone = {process for process in self._stuck if is_gone(process, 0)}
            for process in gone:
                os.close(process)
            self._stuck = [process for process in self._stuck if process not in gone]
            return len(self._stuck)

    def close(self) -> None:
        """End the zygote, and with it every process."""
        with self._lock:
            self._closed = True
            if self._zygote is not None:
                self._zygote.close()

    def process(self, name: str) -> HostedProcess:
        """A process, not yet begun, for the object of this name."""
        return HostedProcess(partial(self._ask, name), self._note_stuck)

    def _ask(self, name: str) -> Line:
        """Ask for a process; the zygote's report comes over the line."""
        with ExitStack() as ours, ExitStack() as theirs:
            stream, its_end = _pair(socket.SOCK_STREAM, ours, theirs)
            report, zygotes_end = _pair(socket.SOCK_SEQPACKET, ours, theirs)
            reading, writing = os.pipe()
            ours.callback(os.close, reading)
            theirs.callback(os.close, writing)
            with self._lock:
                self._send(name, its_end.fileno(), writing, zygotes_end.fileno())
            ours.pop_all()
        return Line(stream, report, reading)

    def _send(self, name: str, *descriptors: int) -> None:
        if self._closed:
            raise HostUnavailable("this service is shutting down")
        if self._zygote is not None:
            try:
                return self._zygote.ask(name, *descriptors)
            except OSError as error:
                log.error("zygote_lost", reason=str(error))
                self._zygote.close()
        try:
            self._zygote = _Zygote(self._load, self._what, self._python)
            return self._zygote.ask(name, *descriptors)
        except (OSError, LaunchError) as error:
            raise HostUnavailable(f"the {self._what} cannot be started: {error}") from error

    def _note_stuck(self, process: int) -> None:
        log.error("process_lives_on", what=self._what, reason="it was killed and has not ended")
        with self._counting:
            self._stuck.append(process)


class EnvironmentHost(ProcessHost):
    """The host of the environments of other packages."""

    def __init__(
        self, entry_points: Sequence[EntryPoint], limits: ProcessLimits, python: Path | None = None
    ) -> None:
        super().__init__(
            entry_points,
            limits,
            what="environments",
            serve="agent_server.environments.hosted.child:serve",
            python=python,
        )

    def environments(self, rewards: Rewards = NO_REWARDS) -> dict[str, EnvironmentKind]:
        """Every environment by name, where this Python imports them."""
        return {name: self.kind(name, needs, rewards) for name, needs in self.needs.items()}

    def kind(self, name: str, needs: Needs, rewards: Rewards) -> EnvironmentKind:
        return EnvironmentKind(partial(self._episode, name, rewards), needs)

    def _episode(self, name: str, rewards: Rewards) -> HostedEpisode:
        return HostedEpisode(self.process(name), rewards)


class _Zygote:
    """The server's end of one zygote process."""

    def __init__(self, load: frames.Load, what: str, python: Path | None = None) -> None:
        self._what = what
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                _command(theirs.fileno(), python),
                stdin=subprocess.PIPE,  # which ends with this process, however that ends
                env=_environment(python),
                process_group=0,  # a signal to the server's group is for the server
                pass_fds=(theirs.fileno(),),
            )
        try:
            self.needs = self._await_imports(load)
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, *descriptors: int) -> None:
        """Ask for a process for the object of this name. Raises `OSError` when the zygote is gone
        or does not listen."""
        frames.send_packet(self._control, frames.Bear(name), *descriptors)

    def close(self) -> None:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_END_SECONDS)  # at the end of its input it ends

    def _await_imports(self, load: frames.Load) -> dict[str, Needs]:
        """Have everything imported, and return what each object needs, by name."""
        self._control.settimeout(_IMPORT_SECONDS)
        try:
            frames.send_packet(self._control, load)
            answer, _ = frames.receive_packet(self._control)
        except (OSError, frames.BadFrame) as error:
            answer = frames.Failed(str(error) or "no answer")
        if not isinstance(answer, frames.LoadedFrame):
            problem = answer.reason if isinstance(answer, frames.Failed) else "their process ended"
            raise LaunchError(
                f"cannot load the {self._what}: {problem}",
                fix="correct its code or its MODULE:NAME, and install what it imports beside this "
                "server; a package that is not needed may be uninstalled",
            )
        self._control.settimeout(_REQUEST_SECONDS)
        return answer.needs


def _pair(
    kind: socket.SocketKind, ours: ExitStack, theirs: ExitStack
) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    return ours.enter_context(one), theirs.enter_context(other)


def _command(control: int, python: Path | None) -> list[str]:
    if python is None:
        return [sys.executable, "-m", _ZYGOTE, str(control)]
    return [str(python), "-P", "-c", _IN_ANOTHER_PYTHON, str(control), str(_OUR_CODE)]


def _environment(python: Path | None) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    kept["PYTHONHASHSEED"] = _HASH_SEED
    if python is not None:
        return kept
    # The zygote imports each module from where this process would import it.
    return kept | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
