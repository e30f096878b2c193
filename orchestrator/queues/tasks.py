"""A Run in Redis: its settings, its Groups, and what its trainer waits for."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import redis

from orchestrator.events import AnyEvent, RunClosed, job_id
from orchestrator.queues.accounts import row_of
from orchestrator.queues.contract import (
    MAX_QUEUED_JOBS,
    backlog_is_full,
    never_fits,
    no_such_batch,
    run_is_closed,
)
from orchestrator.queues.redis_states import RedisStates, batch_report, no_such_run
from orchestrator.queues.redis_trainers import RedisTrainers, epoch_argument
from orchestrator.sampling.decisions import Chosen
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.errors import Conflict, NotFound
from rollyard.messages import (
    BatchReport,
    Group,
    Prompt,
    Result,
    RunSettings,
)

GROUPS_READ_AT_ONCE = 64
MAX_FORGOTTEN_AT_ONCE = 16


class RedisRuns(RedisStates, RedisTrainers):
    """Called with ids of Runs that exist, but where `NotFound` is raised."""

    def create_run(self, settings: RunSettings) -> None:
        """Idempotent for equal settings. Raises `Conflict` when the Run exists with others."""
        stored = self._run_script(
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

    def forget(self, run_id: str) -> None:
        """Remove a closed Run for good. Raises `NotFound`, and `Conflict` for one that is not
        closed, or of which a Job has not ended yet."""
        done = self._run_script("forget", run_id)
        if done == -1:
            raise no_such_run(run_id)
        if done == 0:
            raise Conflict(
                f"run {run_id!r} is not closed, or not all of its jobs have ended",
                fix=f"close it with `rollyard close {run_id}`; if it is closed, try again soon",
            )
        self._settings.pop(run_id, None)

    def forget_closed(self, seconds: float) -> None:
        """Forget Runs that were closed longer ago than that."""

        def read(r: "redis.Redis") -> Any:
            at, _ = r.time()
            closed, most = self._key("closed"), MAX_FORGOTTEN_AT_ONCE
            return r.zrangebyscore(closed, 0, at - seconds, start=0, num=most)

        for run in self._do(read):
            with contextlib.suppress(NotFound, Conflict):
                self.forget(run.decode())

    def submit(
        self,
        run_id: str,
        prompts: Sequence[Prompt],
        *,
        epoch: int | None = None,
        max_queued: int = MAX_QUEUED_JOBS,
    ) -> list[bool]:
        """Put the Jobs of new Groups' first members on the task queue; False for a Prompt that was
        fed before.

        All of them are taken or none: raises `Conflict` when the Run is closed, `TrainerReplaced`
        when `epoch` is not its trainer's any more, `TooLarge` for more than `max_queued` Jobs, and
        `Unavailable` when with them more than so many would wait.
        """
        settings = self._settings_of(run_id)
        triples = [
            part
            for prompt in prompts
            for part in (prompt.prompt_id, codec.encode(prompt), row_of(prompt, settings))
        ]
        members, trainer = settings.first_members, epoch_argument(epoch)
        counted = members or settings.members
        if counted * len(prompts) > max_queued:
            raise never_fits(run_id, counted * len(prompts), max_queued)
        fed = self._run_script("submit", run_id, members, counted, max_queued, trainer, *triples)
        if fed == b"closed":
            raise run_is_closed(run_id)
        if fed == b"taken over":
            raise self._taken_over(run_id)
        if isinstance(fed, int):
            raise backlog_is_full(run_id, fed)
        return [new == 1 for new in fed]

    def tell(self, run_id: str, event: AnyEvent, *, epoch: int | None = None) -> None:
        """Put what the trainer asks for in the order of the Run's events. Raises `TrainerReplaced`
        when `epoch` is not that of its trainer any more."""
        if not self._run_script("tell", run_id, codec.encode(event), epoch_argument(epoch)):
            raise self._taken_over(run_id)

    def close(self, run_id: str, *, epoch: int | None = None) -> None:
        """Put the end of the Run in place of all events that are not concluded; idempotent. Raises
        `TrainerReplaced` when `epoch` is not that of its trainer any more."""
        if not self._run_script("close", run_id, codec.encode(RunClosed()), epoch_argument(epoch)):
            raise self._taken_over(run_id)

    def prompts(self, run_id: str) -> list[str]:
        """Ids of the Run's Prompts that were fed, and are neither dropped nor acknowledged."""
        self._settings_of(run_id)
        names = self._do(lambda r: r.hkeys(self._of_run(run_id, "prompts")))
        return sorted(name.decode() for name in names)

    def begun(self, run_id: str) -> dict[str, int]:
        """Leased Job -> the weight version that was served when it was leased."""
        jobs = self._do(lambda r: r.hkeys(self._of_run(run_id, "holders")))
        if not jobs:
            return {}
        times = self._do(lambda r: r.hmget(self._of_run(run_id, "times"), jobs))
        told = (
            (job.decode(), (time or b"").split()) for job, time in zip(jobs, times, strict=True)
        )
        return {job: int(parts[1]) for job, parts in told if len(parts) > 1}

    def batch(self, run_id: str, batch_id: str) -> tuple[Group, ...]:
        """The Groups of a delivered Batch, with the Results of the members that it has.

        Raises `NotFound`, also when it was just acknowledged.
        """
        stored = self._do(lambda r: r.hget(self._of_run(run_id, "batches"), batch_id))
        chosen = [] if stored is None else codec.decode(stored, list[Chosen])
        groups: list[Group] = []
        for first in range(0, len(chosen), GROUPS_READ_AT_ONCE):
            groups += self._groups(run_id, chosen[first : first + GROUPS_READ_AT_ONCE])
        if not groups or len(groups) < len(chosen):
            raise no_such_batch(run_id, batch_id)
        return tuple(groups)

    def _groups(self, run_id: str, chosen: list[Chosen]) -> Iterator[Group]:
        """Those of these Groups that were not dropped."""
        jobs = [job_id(run_id, each.group_id, member) for each in chosen for member in each.members]

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hmget(self._of_run(run_id, "prompts"), [each.group_id for each in chosen])
            pipe.hmget(self._of_run(run_id, "results"), jobs)
            return pipe.execute()

        prompts, stored = self._do(read)
        results = iter(stored)
        for each, prompt in zip(chosen, prompts, strict=True):
            members = [next(results) for _ in each.members]
            if prompt is not None:
                yield Group(
                    group_id=each.group_id,
                    prompt=codec.decode(prompt, Prompt),
                    results=tuple(codec.decode(result, Result) for result in members),
                )

    def batch_report(self, run_id: str, batch_id: str) -> BatchReport:
        """Of a delivered Batch. Raises `NotFound`."""
        stored = self._do(lambda r: r.hget(self._of_run(run_id, "reports"), batch_id))
        if stored is None:
            raise no_such_batch(run_id, batch_id)
        return batch_report(stored)

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        """Return when the Run may want Prompts or have a Batch, at the latest after `seconds`."""
        self._wait(self._of_run(run_id, "news"), seconds)

    def wait_for_conclusion(self, run_id: str, seconds: float) -> None:
        """Return when something of the Run may have been concluded, at the latest after
        `seconds`."""
        self._wait(self._of_run(run_id, "settled"), seconds)
