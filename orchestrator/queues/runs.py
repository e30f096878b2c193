"""Runs as they stand in Redis, each read at once."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import redis

from orchestrator.events import AnyEvent, groups_of
from orchestrator.queues.accounts import FATES, completed_report
from orchestrator.queues.contract import PendingEvents, Run, Runs, overtaken
from orchestrator.queues.redis_connection import RedisConnection, damaged
from orchestrator.queues.stored_groups import StoredGroups
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.errors import Conflict, InvalidMessage, NotFound, QueueDamaged, RollyardError
from rollyard.messages import BatchReport, Counters, RunSettings, SlotSeconds

MAX_EVENTS_A_TURN = 256
MAX_RUNS_AT_ONCE = 64
MAX_GROUPS_AT_ONCE = 1000
"""Read in one call: Redis serves nobody else meanwhile."""


class RedisStates(RedisConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings: dict[str, RunSettings] = {}
        """Of the Runs seen so far: they do not change while the Run is there."""

    def run_ids(self) -> list[str]:
        return sorted(run.decode() for run in self._do(lambda r: r.smembers(self._key("runs"))))

    def closed_runs(self) -> set[str]:
        return {run.decode() for run in self._do(lambda r: r.zrange(self._key("closed"), 0, -1))}

    def run(self, run_id: str) -> Run:
        """Raises `NotFound`."""
        (stored,) = self._do(partial(self._read_runs, [run_id]))
        return self._run(run_id, stored)

    def runs(self) -> Runs:
        """All of them; one that cannot be read hides no other."""
        readable, broken = list[Run](), dict[str, RollyardError]()
        run_ids = self.run_ids()
        for first in range(0, len(run_ids), MAX_RUNS_AT_ONCE):
            some = run_ids[first : first + MAX_RUNS_AT_ONCE]
            for run_id, stored in zip(some, self._do(partial(self._read_runs, some)), strict=True):
                try:
                    readable.append(self._run(run_id, stored))
                except (Conflict, QueueDamaged) as error:
                    broken[run_id] = error
        return Runs(tuple(readable), broken)

    def set_aside(self, run_id: str, why: str) -> None:
        """Note for people that the Run's events cannot be concluded."""
        self._do(lambda r: r.hset(self._key("set_aside"), run_id, why))

    def take_up_again(self, run_id: str) -> None:
        self._do(lambda r: r.hdel(self._key("set_aside"), run_id))

    def turn(self, run_id: str, most: int = MAX_EVENTS_A_TURN) -> PendingEvents:
        """A Run, its oldest events not yet concluded, and the Groups that they name.

        What the sampler looks at beyond them raises `Conflict` once somebody else has concluded.
        """
        # The Run first: if another collector concludes between the two reads, its events are gone
        # from the list, and a conclusion from the older state is refused.
        run = self.run(run_id)
        events = self.next_events(run_id, most) if run.events_waiting else []
        state = run.state
        state.open = self._stored_groups(run_id, "open", run.concluded)
        state.open.look_up({group for event in events for group in groups_of(event)})
        state.complete = self._stored_groups(run_id, "complete", run.concluded)
        return PendingEvents(run=run, events=events)

    def next_events(self, run_id: str, most: int = MAX_EVENTS_A_TURN) -> list[AnyEvent]:
        """The oldest events not yet concluded; they stay first until they are."""
        stored = self._do(lambda r: r.lrange(self._of_run(run_id, "events"), 0, most - 1))
        # mypy cannot see that a union is a type here; msgspec takes it as one.
        return [codec.decode(event, AnyEvent) for event in stored]  # type: ignore[arg-type]

    def _read_runs(self, run_ids: Sequence[str], r: "redis.Redis") -> list[list[Any]]:
        """What `_run` takes of each; errors stand where they occurred."""
        pipe = r.pipeline(transaction=True)
        for run_id in run_ids:
            pipe.get(self._of_run(run_id, "settings"))
            pipe.get(self._of_run(run_id, "sampler"))
            pipe.hgetall(self._of_run(run_id, "counts"))
            pipe.llen(self._of_run(run_id, "tasks"))
            pipe.hlen(self._of_run(run_id, "holders"))
            pipe.scard(self._of_run(run_id, "parked"))
            pipe.llen(self._of_run(run_id, "events"))
            pipe.hmget(self._of_run(run_id, "config"), "concluded", "sweeping", "model")
            pipe.get(self._of_run(run_id, "last_report"))
            pipe.hlen(self._of_run(run_id, "open"))
            pipe.hget(self._key("set_aside"), run_id)
            pipe.hmget(self._of_run(run_id, "trainer"), "seen", "left")
            pipe.time()
        answers = pipe.execute(raise_on_error=False)
        fields = len(answers) // len(run_ids)
        return [answers[first : first + fields] for first in range(0, len(answers), fields)]

    def _run(self, run_id: str, stored: list[Any]) -> Run:
        for answer in stored:
            if isinstance(answer, redis.RedisError):
                raise damaged(answer) from answer
        settings, sampler, counts, queued, leased, parked, *rest = stored
        events, (concluded, sweeping, model), report, open_groups, aside, *rest = rest
        (seen, left), (seconds, micros) = rest
        now = seconds + micros / 1e6
        if settings is None:
            raise no_such_run(run_id)
        state = _sampler_state(run_id, sampler)
        state.open = self._stored_groups(run_id, "open")
        state.complete = self._stored_groups(run_id, "complete")
        # Another orchestrator may have forgotten a Run of this name, and made one anew.
        self._settings[run_id] = codec.decode(settings, RunSettings)
        return Run(
            settings=self._settings[run_id],
            state=state,
            counters=_counters(counts, state, queued, leased, parked),
            concluded=int(concluded or 0),
            events_waiting=events,
            open_groups=open_groups,
            sweeping=sweeping is not None,
            set_aside=(aside or b"").decode(),
            last_report=None if report is None else batch_report(report),
            model=(model or b"").decode(),
            trainer_left=left is not None,
            trainer_silent_seconds=0.0 if seen is None else max(0.0, now - float(seen)),
        )

    def _stored_groups(self, run_id: str, kind: str, concluded: int | None = None) -> StoredGroups:
        """The open or complete Groups of the Run's sampler; as of `concluded`, if it is given."""
        hash_of_groups = self._of_run(run_id, kind)

        def read_some(names: list[str]) -> Mapping[str, bytes]:
            def read(r: "redis.Redis") -> list[Any]:
                pipe = r.pipeline(transaction=True)
                pipe.hmget(hash_of_groups, names)
                pipe.hget(self._of_run(run_id, "config"), "concluded")
                return pipe.execute()

            packed, concluded_now = self._do(read)
            if concluded is not None and int(concluded_now or 0) != concluded:
                raise overtaken(run_id)
            return {n: each for n, each in zip(names, packed, strict=True) if each is not None}

        def read(names: list[str] | None) -> Mapping[str, bytes]:
            if names is None:
                names = [name.decode() for name in self._do(lambda r: r.hkeys(hash_of_groups))]
            found: dict[str, bytes] = {}
            for first in range(0, len(names), MAX_GROUPS_AT_ONCE):
                found |= read_some(names[first : first + MAX_GROUPS_AT_ONCE])
            return found

        # Complete ones are no more than the Batches hold, which a Batch looks at one by one.
        return StoredGroups(read, all_together=kind == "complete")

    def _settings_of(self, run_id: str) -> RunSettings:
        settings = self._settings.get(run_id)
        if settings is None:
            stored = self._do(lambda r: r.get(self._of_run(run_id, "settings")))
            if stored is None:
                raise no_such_run(run_id)
            settings = self._settings[run_id] = codec.decode(stored, RunSettings)
        return settings


def no_such_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id!r}", fix="create it with Client.run(...)")


def _sampler_state(run_id: str, stored: bytes) -> SamplerState:
    try:
        state = codec.decode(stored, SamplerState)
    except InvalidMessage as error:
        raise _another_version(run_id, error.message) from error
    if state.open or state.complete:
        raise _another_version(run_id, "its groups are within its state")
    return state


def _another_version(run_id: str, why: str) -> Conflict:
    return Conflict(
        f"run {run_id!r} was stored by another version of Rollyard: {why}",
        fix="finish it with that version, or start this one with an empty Redis or another "
        "key prefix",
    )


def _counters(
    counts: dict[bytes, bytes], state: SamplerState, queued: int, leased: int, parked: int
) -> Counters:
    def number(name: str) -> int:
        return int(counts.get(name.encode(), 0))

    def seconds(fate: str) -> float:
        return float(counts.get(f"seconds:{fate}".encode(), 0.0))

    return Counters(
        **state.fates(),
        groups_fed=number("groups_fed"),
        jobs_submitted=number("submitted"),
        jobs_queued=queued,
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
        slot_seconds=SlotSeconds(**{fate: seconds(fate) for fate in FATES}),
    )


def batch_report(stored: bytes) -> BatchReport:
    seconds, slots, idle, report = stored.split(b" ", 3)
    return completed_report(
        codec.decode(report, BatchReport),
        seconds=float(seconds),
        slots=int(slots),
        idle=float(idle),
    )
