"""The Runs: their settings, and their state at one moment."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import redis
import structlog
from redis.client import Pipeline

from orchestrator.kinds import JobKind, read_kind
from orchestrator.queues.connection import RedisConnection, damaged
from orchestrator.queues.question import Question
from orchestrator.queues.records import batch_report, share_of
from orchestrator.queues.stored_groups import groups_of_run
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.errors import Conflict, InvalidMessage, NotFound, QueueDamaged, RollyardError
from rollyard.messages import BatchReport, Counters, Name, RunSettings, Share, SlotSeconds

MAX_RUNS_AT_ONCE = 64
MAX_FORGOTTEN_AT_ONCE = 16
MAX_STOPPED_FOR_IT = 256
"""Jobs of a closed Run that one call stops, so that it can be forgotten."""
MAX_KINDS_NAMED = 3

log = structlog.get_logger()


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The queued Jobs of a Run, by what can run them."""

    jobs: dict[str, int] = {}
    """Class of agent servers that the Run has had Jobs for -> number of queued Jobs that they can
    run."""
    unoffered_kinds: tuple[JobKind, ...] = ()
    """The first kinds of queued Jobs that no registered agent server can run."""


class Run(msgspec.Struct, frozen=True):
    """The state of a Run at one moment."""

    settings: RunSettings
    state: SamplerState
    counters: Counters
    concluded: int
    """Number of events that the sampler has handled."""
    events_waiting: int
    """Number of events that the collector has not concluded."""
    open_groups: int
    backlog: Backlog = Backlog()
    sweeping: bool = False
    """True while a closed Run has Jobs or records left to be removed."""
    set_aside: str = ""
    """Reason why its events cannot be concluded; empty if they can."""
    share: Share = Share()
    last_report: BatchReport | None = None
    """The report on the Batch that was completed last."""
    model: str = ""
    """Digest of the model that its first Job began with; empty before, and where none was told."""
    epoch: int | None = None
    """Epoch of the trainer that drives the Run; None before the first."""
    trainer_left: bool = False
    trainer_silent_seconds: float = 0.0
    """Time since the Run's trainer was heard of; 0 if it never had one."""


class AllRuns(msgspec.Struct, frozen=True):
    """The state of all Runs."""

    readable: tuple[Run, ...]
    broken: dict[str, RollyardError]
    """Run -> the error that keeps it from being read."""


class Runs:
    """Owns copies of the settings of Runs, which do not change while a Run is there."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._settings: dict[str, RunSettings] = {}
        self._passed_over = 0
        """How many of those closed longest ago could not be forgotten at the last look."""
        self._not_forgotten: set[str] = set()
        """Those whose records are damaged, which was logged."""

    def create(self, settings: RunSettings) -> None:
        """Create a Run, or leave one with equal settings as it is. Raises `Conflict` if it exists
        with other settings."""
        stored = self._connection.run_script(
            "create_run",
            settings.run_id,
            codec.encode(settings),
            codec.encode(SamplerState()),
            settings.max_infra_failures,
            settings.trainer_silent_seconds,
            settings.look_ahead_jobs,
        )
        if codec.decode(stored, RunSettings) != settings:
            raise Conflict(
                f"run {settings.run_id!r} exists with other settings",
                fix="choose another run_id, or the settings that it was created with",
            )

    def ids(self) -> list[str]:
        runs = self._connection.do(lambda r: r.smembers(self._connection.key("runs")))
        return sorted(run.decode() for run in runs)

    def closed_ids(self) -> set[str]:
        closed = self._connection.do(lambda r: r.zrange(self._connection.key("closed"), 0, -1))
        return {run.decode() for run in closed}

    def settings(self, run_id: str) -> RunSettings:
        """The settings of a Run. Raises `NotFound`."""
        settings = self._settings.get(run_id)
        if settings is None:
            stored = self._connection.do(
                lambda r: r.get(self._connection.of_run(run_id, "settings"))
            )
            if stored is None:
                raise no_such_run(run_id)
            settings = self._settings[run_id] = codec.decode(stored, RunSettings)
        return settings

    def overlook(self, run_id: str) -> None:
        """Know nothing of a Run that another orchestrator has forgotten."""
        self._settings.pop(run_id, None)

    def read(self, run_id: str) -> Run:
        """The state of a Run. Raises `NotFound`."""
        return self._connection.ask(self.run(run_id))

    def run(self, run_id: str) -> Question[Run]:
        """The state of a Run. Reading the answer raises `NotFound`."""
        return Question(partial(self._ask_for, run_id=run_id), partial(self._run, run_id))

    def read_all(self) -> AllRuns:
        """The state of all Runs; one that cannot be read hides no other."""
        readable, broken = list[Run](), dict[str, RollyardError]()
        run_ids = self.ids()
        for first in range(0, len(run_ids), MAX_RUNS_AT_ONCE):
            some = run_ids[first : first + MAX_RUNS_AT_ONCE]
            for run_id, stored in zip(some, self._read(some), strict=True):
                try:
                    readable.append(self._run(run_id, stored))
                except (Conflict, QueueDamaged) as error:
                    broken[run_id] = error
        return AllRuns(tuple(readable), broken)

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        """Return when the Run may want Prompts or have a Batch, at the latest after `seconds`."""
        self._connection.wait(self._connection.of_run(run_id, "news"), seconds)

    def share(self, run_id: Name, share: Share) -> None:
        """Let the Run have this share of the Slots from now on. Raises `NotFound`."""
        if not self._connection.run_script("share", run_id, share.weight, share.max_slots):
            raise no_such_run(run_id)

    def forget(self, run_id: Name) -> None:
        """Remove a closed Run with all its records. Raises `NotFound`, and `Conflict` while it is
        not closed, or a Job of it has not ended yet."""
        done = self._connection.run_script("forget", run_id)
        if done == -1:
            raise no_such_run(run_id)
        if done == 0:
            raise Conflict(
                f"run {run_id!r} is not closed, or not all of its jobs have ended",
                fix=f"close it with `rollyard close {run_id}`; if it is closed, try again soon",
            )
        self._settings.pop(run_id, None)

    def forget_closed(self) -> None:
        """Forget Runs that were closed longer ago than records are kept, some at a time. What still
        runs of one is stopped; one that cannot be forgotten holds up no other."""

        def closed_long_ago(r: "redis.Redis") -> Any:
            before = r.time()[0] - self._connection.retention_seconds
            closed, start = self._connection.key("closed"), self._passed_over
            return r.zrangebyscore(closed, 0, before, start=start, num=MAX_FORGOTTEN_AT_ONCE)

        found = [run.decode() for run in self._connection.do(closed_long_ago)]
        for run_id in found:
            try:
                done = self._connection.run_script("forget", run_id, MAX_STOPPED_FOR_IT)
            except QueueDamaged as error:
                if run_id not in self._not_forgotten:
                    log.warning("run_not_forgotten", run_id=run_id, reason=error.message)
                self._not_forgotten.add(run_id)
                done = 0
            if done == 0:
                self._passed_over += 1
            self._settings.pop(run_id, None)
        if len(found) < MAX_FORGOTTEN_AT_ONCE:
            self._passed_over = 0

    def _read(self, run_ids: Sequence[str]) -> list[list[Any]]:
        """The stored fields of each Run, for `_run`; an error stands in the place of its answer."""
        pipe = self._connection.pipeline()
        for run_id in run_ids:
            self._ask_for(pipe, run_id)
        answers = self._connection.read(pipe, raise_on_error=False)
        fields = len(answers) // len(run_ids)
        return [answers[first : first + fields] for first in range(0, len(answers), fields)]

    def _ask_for(self, pipe: Pipeline, run_id: str) -> None:
        of_run = self._connection.of_run
        pipe.get(of_run(run_id, "settings"))
        pipe.get(of_run(run_id, "sampler"))
        pipe.hgetall(of_run(run_id, "counts"))
        pipe.hgetall(of_run(run_id, "queued"))
        pipe.zrange(of_run(run_id, "next:nobody"), 0, MAX_KINDS_NAMED - 1)
        pipe.hlen(of_run(run_id, "holders"))
        pipe.scard(of_run(run_id, "parked"))
        pipe.llen(of_run(run_id, "events"))
        pipe.hmget(of_run(run_id, "config"), "concluded", "sweeping", "model")
        pipe.get(of_run(run_id, "last_report"))
        pipe.hlen(of_run(run_id, "open"))
        for name in ("set_aside", "shares"):
            pipe.hget(self._connection.key(name), run_id)
        pipe.hmget(of_run(run_id, "trainer"), "epoch", "seen", "left")
        pipe.time()

    def _run(self, run_id: str, stored: list[Any]) -> Run:
        for answer in stored:
            if isinstance(answer, redis.RedisError):
                raise damaged(answer) from answer
        settings, sampler, counts, queued, unoffered_kinds, leased, parked, *rest = stored
        events, (concluded, sweeping, model), report, open_groups, aside, share, *rest = rest
        (epoch, seen, left), (seconds, micros) = rest
        now = seconds + micros / 1e6
        if settings is None:
            raise no_such_run(run_id)
        state = _sampler_state(run_id, sampler)
        state.open = groups_of_run(self._connection, run_id, "open")
        state.complete = groups_of_run(self._connection, run_id, "complete")
        # Another orchestrator may have forgotten a Run of this name, and made one anew.
        self._settings[run_id] = codec.decode(settings, RunSettings)
        return Run(
            settings=self._settings[run_id],
            state=state,
            counters=_counters(counts, state, queued, leased, parked),
            concluded=int(concluded or 0),
            events_waiting=events,
            open_groups=open_groups,
            backlog=_backlog(queued, unoffered_kinds),
            sweeping=sweeping is not None,
            set_aside=(aside or b"").decode(),
            share=share_of(share),
            last_report=None if report is None else batch_report(report),
            model=(model or b"").decode(),
            epoch=None if epoch is None else int(epoch),
            trainer_left=left is not None,
            trainer_silent_seconds=0.0 if seen is None else max(0.0, now - float(seen)),
        )


def no_such_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id!r}", fix="create it with Client.run(...)")


def run_is_closed(run_id: str) -> Conflict:
    return Conflict(f"run {run_id!r} is closed", fix="create a run with another run_id")


def _sampler_state(run_id: str, stored: bytes) -> SamplerState:
    try:
        return codec.decode(stored, SamplerState)
    except InvalidMessage as error:
        raise Conflict(
            f"run {run_id!r} was stored by another version of Rollyard: {error.message}",
            fix="finish it with that version, or start this one with an empty Redis or another "
            "key prefix",
        ) from error


def _backlog(queued: dict[bytes, bytes], unoffered_kinds: list[bytes]) -> Backlog:
    jobs = {name.decode(): int(number) for name, number in queued.items()}
    return Backlog(
        jobs={name: number for name, number in jobs.items() if name not in ("all", "nobody")},
        unoffered_kinds=tuple(map(read_kind, unoffered_kinds)),
    )


def _counters(
    counts: dict[bytes, bytes],
    state: SamplerState,
    queued: dict[bytes, bytes],
    leased: int,
    parked: int,
) -> Counters:
    def number(name: str) -> int:
        return int(counts.get(name.encode(), 0))

    def seconds(fate: str) -> float:
        return float(counts.get(f"seconds:{fate}".encode(), 0.0))

    return Counters(
        **state.fates(),
        groups_fed=number("groups_fed"),
        jobs_submitted=number("submitted"),
        jobs_queued=int(queued.get(b"all", 0)),
        jobs_unoffered=int(queued.get(b"nobody", 0)),
        jobs_leased=leased,
        jobs_parked=parked,
        jobs_accepted=number("accepted"),
        jobs_dead=number("dead"),
        jobs_dropped=number("dropped"),
        attempts_stopped=number("attempts_stopped"),
        jobs_carried_over=number("carried_over"),
        attempts_failed=number("attempts_failed"),
        results_refused=number("results_refused"),
        rewards_sum=float(counts.get(b"rewards_sum", 0.0)),
        slot_seconds=SlotSeconds(**{fate: seconds(fate) for fate in SlotSeconds.__struct_fields__}),
    )
