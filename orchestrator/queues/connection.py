"""The connection to one Redis under our key prefix: scripts, waits, and translated errors.

- Owns the connections and nothing else: all state is Redis's. Safe to share between threads.
- Nothing is read or written where another version of Rollyard keeps its state.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.commands.core import Script
from redis.retry import Retry

from orchestrator.queues import limits
from orchestrator.queues.address import PREFIX
from orchestrator.queues.limits import (
    DEFAULT_QUARANTINE,
    RETENTION_SECONDS,
    QuarantineSettings,
)
from orchestrator.queues.question import Question
from rollyard.errors import OtherStateVersion, QueueDamaged, QueueUnavailable, RollyardError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

STATE_VERSION = 3
"""Raise this with every change to what a key holds, so that no version misreads another's state."""

SCRIPTS = Path(__file__).parent / "scripts"
SHARED = [
    f"_{name}.lua"
    for name in (
        "ids",
        "common",
        "classes",
        "shares",
        "tasks",
        "weights",
        "models",
        "history",
        "servers",
        "leasing",
    )
]
MAX_WAIT_SECONDS = 20.0
MAX_MOVE_SECONDS = 15.0
"""Time for one move, half of a Lease: the largest ones take several seconds."""
MAX_PING_SECONDS = 3.0
"""Time after which a person who asks is told that Redis stands still."""
NEED_MEMORY = frozenset({"claim", "create_run", "lease", "register", "report", "requeue", "submit"})
"""Scripts that a full Redis refuses as a whole. It runs all others: without them running Jobs would
be lost, and no memory would ever come back."""
_DAMAGE = re.compile(r"WRONGTYPE|user_script:|.*value is not an integer|.*Lua script")
"""The errors by which Redis says that a key holds something that no script of ours wrote."""


class RedisConnection:
    def __init__(
        self,
        url: str,
        *,
        password: str = "",
        prefix: str = PREFIX,
        quarantine: QuarantineSettings = DEFAULT_QUARANTINE,
        retention_seconds: float = RETENTION_SECONDS,
    ) -> None:
        self.retention_seconds = retention_seconds
        """Time for which closed Runs, and the ids of Groups that are gone, are kept."""
        self._redis = _connect(url, password, MAX_MOVE_SECONDS)
        self._waiting = _connect(url, password, MAX_WAIT_SECONDS + MAX_MOVE_SECONDS)
        self._asking = _connect(url, password, MAX_PING_SECONDS)
        self._prefix = prefix
        self._is_our_version = False
        constants = _constants(quarantine, retention_seconds)
        common = constants + "".join((SCRIPTS / name).read_text() for name in SHARED)
        self.scripts: dict[str, Script] = {
            path.stem: self._redis.register_script(_header(path.stem) + common + path.read_text())
            for path in SCRIPTS.glob("[a-z]*.lua")
        }

    def ping(self) -> None:
        """Raise `QueueUnavailable`, soon enough for a person who waits, unless Redis answers."""
        _translated(self._asking.ping)

    def key(self, name: str) -> str:
        return self._prefix + name

    def of_run(self, run_id: str, name: str) -> str:
        return f"{self._prefix}run:{run_id}:{name}"

    def run_script(self, name: str, *arguments: Any) -> Any:
        """The answer of a script, which reads None as ''."""
        script, args = self.scripts[name], ["" if each is None else each for each in arguments]
        return self.do(lambda r: script(args=[self._prefix, *args], client=r))

    def wait(self, key: str, seconds: float) -> Any:
        """The first entry of the list `key`, taken off it; None if none came within `seconds`."""
        timeout = min(seconds, MAX_WAIT_SECONDS)
        if timeout <= 0:
            return self.do(lambda r: r.lpop(key))
        popped = self.do(lambda _: self._waiting.blpop([key], timeout=timeout))
        return None if popped is None else popped[1]

    def pipeline(self) -> Pipeline:
        """An empty list of questions for `read`."""
        return self._redis.pipeline(transaction=True)

    def read(self, pipe: Pipeline, *, raise_on_error: bool = True) -> list[Any]:
        """The answers to all questions in the pipeline, as of one moment; an error in the place of
        an answer unless `raise_on_error`."""
        answers: list[Any] = self.do(lambda _: pipe.execute(raise_on_error=raise_on_error))
        return answers

    def ask(self, question: Question[A]) -> A:
        pipe = self.pipeline()
        question.put(pipe)
        return question.read(self._told(pipe))

    @overload
    def ask_together(self, a: Question[A], b: Question[B], /) -> tuple[A, B]: ...
    @overload
    def ask_together(
        self, a: Question[A], b: Question[B], c: Question[C], d: Question[D], e: Question[E], /
    ) -> tuple[A, B, C, D, E]: ...
    def ask_together(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """The answers to all questions, as of one moment."""
        pipe, ends = self.pipeline(), [0]
        for question in questions:
            question.put(pipe)
            ends.append(len(pipe))
        told = self._told(pipe)
        parts = zip(questions, ends, ends[1:], strict=False)
        return tuple(question.read(told[first:end]) for question, first, end in parts)

    def _told(self, pipe: Pipeline) -> list[Any]:
        # Raised by `read`, an error would begin with its command and not be known as damage.
        told = self.read(pipe, raise_on_error=False)
        for answer in told:
            if isinstance(answer, redis.RedisError):
                raise _ours(answer) from answer
        return told

    def do(self, work: Callable[["redis.Redis"], Any]) -> Any:
        """The result of `work`. Raises `QueueUnavailable`, or `OtherStateVersion` before all."""
        if not self._is_our_version:
            _translated(self._check_version)
            self._is_our_version = True
        return _translated(lambda: work(self._redis))

    def _check_version(self) -> None:
        """Raise `OtherStateVersion` unless the state is of our version, which a new one gets."""
        pipe = self._redis.pipeline(transaction=True)
        pipe.get(self.key("version"))
        pipe.exists(self.key("runs"))
        stored, has_runs = pipe.execute()
        ours = str(STATE_VERSION).encode()
        if stored is None and not has_runs:
            # Somebody else may start at the same moment: the first version that is written stands.
            stored = self._redis.set(self.key("version"), ours, nx=True, get=True) or ours
        if stored != ours:
            raise _other_version(stored)


def as_text(packed: bytes) -> msgspec.Raw:
    """Bytes as a part of a message to a script, whose msgpack knows strings but no bytes."""
    return msgspec.Raw(b"\xdb" + len(packed).to_bytes(4, "big") + packed)


def _translated(work: Callable[[], Any]) -> Any:
    """The result of `work`, with the errors of Redis translated into ours."""
    try:
        return work()
    except redis.RedisError as error:
        raise _ours(error) from error


def _ours(error: redis.RedisError) -> RollyardError:
    if is_damage(error):
        return damaged(error)
    return QueueUnavailable(
        f"Redis does not do its work: {error}",
        fix="is it running, and not stopped or out of memory or disk? its log says why not",
    )


def is_damage(error: object) -> bool:
    """Whether Redis works, but a key holds something that the move cannot handle."""
    kind = type(error)
    return kind is redis.ResponseError and bool(_DAMAGE.match(str(error)))


def damaged(error: object) -> QueueDamaged:
    return QueueDamaged(
        f"Redis refuses a move: {error}",
        fix="has somebody else written a key of Rollyard's prefix? remove it, or the whole run",
    )


def _other_version(stored: bytes | None) -> OtherStateVersion:
    found = "before versions were numbered" if stored is None else f"with version {stored.decode()}"
    return OtherStateVersion(
        f"the runs in this Redis were stored {found} of Rollyard's state, and this is version "
        f"{STATE_VERSION}",
        fix="finish them with the Rollyard that began them, or start this one with an empty data "
        "directory or another --redis-prefix",
    )


def _connect(url: str, password: str, answer_seconds: float) -> "redis.Redis":
    return redis.Redis.from_url(
        url,
        password=password or None,
        socket_timeout=answer_seconds,
        socket_connect_timeout=MAX_PING_SECONDS,
        max_connections=1024,
        # Who calls decides: a move whose answer was lost may have been made.
        retry=Retry(NoBackoff(), retries=0),
    )


def _header(script: str) -> str:
    return "#!lua\n" if script in NEED_MEMORY else "#!lua flags=allow-oom\n"


def _constants(quarantine: QuarantineSettings, retention_seconds: float) -> str:
    """The limits as Lua constants, for all scripts."""
    constants = {name: value for name, value in vars(limits).items() if name.startswith("MAX_")} | {
        "STATE_VERSION": STATE_VERSION,
        "RETENTION_SECONDS": retention_seconds,
        "QUARANTINE_AFTER": quarantine.after_failures,
        "QUARANTINE_SECONDS": quarantine.first_seconds,
        "MAX_QUARANTINE_SECONDS": quarantine.max_seconds,
    }
    return "".join(f"local {name} = {value}\n" for name, value in constants.items())
