"""A Run in Redis: its settings, its Groups, and what its trainer waits for."""

from collections.abc import Iterator, Sequence
from typing import Any

import redis

from orchestrator.events import AnyEvent, job_id
from orchestrator.queues.contract import (
    MOST_QUEUED_JOBS,
    Run,
    backlog_is_full,
    run_is_closed,
)
from orchestrator.queues.redis_connection import RedisConnection
from orchestrator.sampler import SamplerState
from rollyard import codec
from rollyard.errors import Conflict, NotFound
from rollyard.messages import Counters, Group, Prompt, Result, RunSettings

GROUPS_READ_AT_ONCE = 64


class RedisRuns(RedisConnection):
    """Called with ids of Runs that exist, but where `NotFound` is raised."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings: dict[str, RunSettings] = {}
        """Of the Runs seen so far: they never change."""

    def create_run(self, settings: RunSettings) -> None:
        stored = self._run_script(
            "create_run",
            settings.run_id,
            codec.encode(settings),
            codec.encode(SamplerState()),
            settings.max_infra_failures,
        )
        if codec.decode(stored, RunSettings) != settings:
            raise Conflict(
                f"run {settings.run_id!r} exists with other settings",
                fix="choose another run_id, or the settings that it was created with",
            )

    def run_ids(self) -> list[str]:
        return sorted(run.decode() for run in self._do(lambda r: r.smembers(self._key("runs"))))

    def run(self, run_id: str) -> Run:
        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.get(self._of_run(run_id, "settings"))
            pipe.get(self._of_run(run_id, "sampler"))
            pipe.hgetall(self._of_run(run_id, "counts"))
            pipe.llen(self._of_run(run_id, "tasks"))
            pipe.hlen(self._of_run(run_id, "holders"))
            pipe.llen(self._of_run(run_id, "events"))
            pipe.hget(self._of_run(run_id, "config"), "concluded")
            return pipe.execute()

        settings, state, counts, queued, leased, events, concluded = self._do(read)
        if settings is None:
            raise NotFound(f"there is no run {run_id!r}", fix="create it with Client.run(...)")
        sampler_state = codec.decode(state, SamplerState)
        return Run(
            codec.decode(settings, RunSettings),
            sampler_state,
            _counters(counts, sampler_state, queued, leased),
            int(concluded or 0),
            events,
        )

    def _settings_of(self, run_id: str) -> RunSettings:
        settings = self._settings.get(run_id)
        if settings is None:
            settings = self._settings[run_id] = self.run(run_id).settings
        return settings

    def submit(
        self, run_id: str, prompts: Sequence[Prompt], *, most_queued: int = MOST_QUEUED_JOBS
    ) -> list[bool]:
        members = self._settings_of(run_id).group_size
        pairs = [part for p in prompts for part in (p.prompt_id, codec.encode(p))]
        fed = self._run_script("submit", run_id, members, most_queued, *pairs)
        if fed == b"closed":
            raise run_is_closed(run_id)
        if isinstance(fed, int):
            raise backlog_is_full(run_id, fed)
        return [new == 1 for new in fed]

    def tell(self, run_id: str, event: AnyEvent) -> None:
        self._run_script("tell", run_id, codec.encode(event))

    def batch(self, run_id: str, batch_id: str) -> tuple[Group, ...]:
        stored = self._do(lambda r: r.hget(self._of_run(run_id, "batches"), batch_id))
        size = self._settings_of(run_id).group_size
        group_ids = [] if stored is None else codec.decode(stored, list[str])
        groups: list[Group] = []
        for first in range(0, len(group_ids), GROUPS_READ_AT_ONCE):
            groups += self._groups(run_id, group_ids[first : first + GROUPS_READ_AT_ONCE], size)
        if not groups or len(groups) < len(group_ids):
            raise NotFound(f"run {run_id!r} has no batch {batch_id!r} to fetch")
        return tuple(groups)

    def _groups(self, run_id: str, group_ids: list[str], size: int) -> Iterator[Group]:
        """Those of these Groups that were not dropped."""
        jobs = [
            job_id(run_id, group_id, member) for group_id in group_ids for member in range(size)
        ]

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hmget(self._of_run(run_id, "prompts"), group_ids)
            pipe.hmget(self._of_run(run_id, "results"), jobs)
            return pipe.execute()

        prompts, results = self._do(read)
        for number, (group_id, prompt) in enumerate(zip(group_ids, prompts, strict=True)):
            if prompt is not None:
                members = results[number * size : (number + 1) * size]
                yield Group(
                    group_id=group_id,
                    prompt=codec.decode(prompt, Prompt),
                    results=tuple(codec.decode(result, Result) for result in members),
                )

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        self._wait(self._of_run(run_id, "news"), seconds)


def _counters(
    counts: dict[bytes, bytes], state: SamplerState, queued: int, leased: int
) -> Counters:
    def number(name: str) -> int:
        return int(counts.get(name.encode(), 0))

    return Counters(
        groups_kept=state.groups_kept,
        groups_filtered=state.groups_filtered,
        groups_dead=state.groups_dead,
        groups_cancelled=state.groups_cancelled,
        jobs_submitted=number("submitted"),
        jobs_queued=queued,
        jobs_leased=leased,
        jobs_accepted=number("accepted"),
        jobs_dead=number("dead"),
        jobs_dropped=number("dropped"),
        attempts_stopped=number("attempts_stopped"),
        jobs_recycled=number("recycled"),
        attempts_failed=number("attempts_failed"),
        results_refused=number("results_refused"),
        rewards_sum=float(counts.get(b"rewards_sum", 0.0)),
    )
