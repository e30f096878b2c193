"""A trainer's process, in this one, that dies at a given moment.

Its moments are every call to the orchestrator, before it is made and after it took effect, every
change of a file in its directory, and every step. Once it is dead it can do none of these.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rollyard.client import Client
from rollyard.errors import Conflict, OrchestratorUnavailable
from rollyard.http import Peer
from rollyard.messages import Sampling
from rollyard.rows import Row
from tests.trainers.clock import Clock, WaitsOn
from tests.trainers.contract import GROUP_SIZE, TEMPERATURE, Adapter, Start, TrainedRow, Trainer

CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")
NOUNS = {"": "status", "trainer": "take over", "weights": "publish", "batches": "request"}


class Killed(BaseException):
    pass


Moment = tuple[str, int]
"""What the process is about to do, or has done, for the nth time; n begins at 0."""


Fails = Callable[[str], bool]
"""Whether a call fails at this moment, before it is made or after it took effect."""


def never(moment: str) -> bool:
    return False


class Connection(Peer):
    """The process's connection to the orchestrator, which may be away."""

    def __init__(self, orchestrator: Peer, process: "Process") -> None:
        self._orchestrator = orchestrator
        self._process = process

    def get(self, path: str, kind: Any, *, timeout_seconds: float | None = None) -> Any:
        return self._made("get", path, lambda: self._orchestrator.get(path, kind))

    def post(
        self, path: str, message: Any, kind: Any, *, timeout_seconds: float | None = None
    ) -> Any:
        return self._made("post", path, lambda: self._orchestrator.post(path, message, kind))

    def close(self) -> None:
        pass

    def _made(self, method: str, path: str, ask: Callable[[], Any]) -> Any:
        name = f"{method} {_noun(path)}"
        self._passes(f"before {name}")
        answer = ask()
        self._passes(f"after {name}")
        return answer

    def _passes(self, moment: str) -> None:
        self._process.moment(moment)
        if self._process.is_this_thread and self._process.fails(moment):
            raise OrchestratorUnavailable(f"nobody answers {moment}")


class Process:
    """The next process of a trainer in `directory`."""

    def __init__(
        self, directory: Path, dies_at: Moment | None = None, fails: Fails = never
    ) -> None:
        self.directory = directory
        self.fails = fails
        self.dies_at = dies_at
        self.dead = False
        self.moments: Counter[str] = Counter()
        self.steps: dict[int, Sequence[TrainedRow]] = {}
        """What this process trained on, by the number of the step."""
        self._thread = threading.get_ident()

    @property
    def is_this_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def moment(self, what: str) -> None:
        if not self.is_this_thread:
            if self.dead:
                raise Conflict(
                    "the process is dead"
                )  # a thread of it: pytest reports BaseExceptions
            return
        if self.dead or (what, self.moments[what]) == self.dies_at:
            self.dead = True
            raise Killed(f"{what}, {self.moments[what]}")
        self.moments[what] += 1

    def stepped(self, number: int, rows: Sequence[TrainedRow]) -> None:
        self.moment("before step")
        self.steps[number] = rows
        self.moment("after step")

    @contextmanager
    def trainer(
        self,
        adapter: Adapter,
        orchestrator: Peer,
        rows: Sequence[Row],
        policy_dir: Path,
        *,
        steps: int,
        clock: Clock | None = None,
        **settings: Any,
    ) -> Iterator[Trainer]:
        """The trainer of this process, for the `with` in which it lives. `settings` are others than
        usual, of its Run."""
        with self._watched():
            client = ConnectedClient(Connection(orchestrator, self), clock)
            try:
                usual: dict[str, Any] = {
                    "group_size": GROUP_SIZE,
                    "sampling": Sampling(temperature=TEMPERATURE),
                    "max_staleness": adapter.max_staleness,
                }
                run = client.run(iter(rows), run_id="run", **{**usual, **settings})
                start = Start(client, run, self.directory, policy_dir, steps, self.stepped)
                yield adapter.trainer(start)
            finally:
                client.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        _hook.watch(self)
        try:
            yield
        finally:
            _hook.watch(None)


class ConnectedClient(Client):
    def __init__(self, connection: Connection, clock: Clock | None) -> None:
        super().__init__("http://127.0.0.1:9", token="none", show_progress=False)
        self._api.peer = connection
        if clock is not None:
            self._api._closed = WaitsOn(clock)


class _Hook:
    """Tells the process that is watched of changes to its files. Python can remove no such hook."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._added = False

    def watch(self, process: Process | None) -> None:
        self._process = process
        if not self._added:
            self._added = True
            sys.addaudithook(self._audit)

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        process = self._process
        if process is None or not (event in CHANGES or (event == "open" and _writes(given))):
            return
        with suppress(TypeError, ValueError):  # a descriptor, or a file elsewhere
            path = Path(given[0]).relative_to(process.directory)
            process.moment(f"{event} in {path.parts[0] if path.parts else ''}")


_hook = _Hook()


def _writes(given: tuple[Any, ...]) -> bool:
    mode = given[1]
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _noun(path: str) -> str:
    parts = urlsplit(path).path.split("/")
    if len(parts) > 4 and parts[3] == "batches":
        return parts[5] if len(parts) > 5 else "batch"
    last = parts[-1] if len(parts) > 3 else ""
    return NOUNS.get(last, last)
