"""The Jobs as people look at them: their places, their attempts, their Prompts and Results.

A dead Job keeps its Prompt, reason and history until it is requeued.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from redis.client import Pipeline

from orchestrator.ids import group_of, is_job_id, job_id, run_of, server_of
from orchestrator.kinds import read_kind
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.question import Question
from orchestrator.queues.records import StoredJob, ask_for_job, attempts, avoided, job_record
from orchestrator.queues.runs import Runs
from rollyard import codec
from rollyard.errors import NotFound
from rollyard.messages import DeadJob, JobRecord, JobState, Prompt, Result


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The Jobs that occupy Slots."""

    leased: int
    """Number of leased Jobs of all Runs, parked or not."""
    parked: dict[str, int]
    """Run -> number of its parked Jobs, if it has any."""


class Leased(NamedTuple):
    jobs: int
    """Number of leased Jobs of all Runs."""
    runs: list[str]
    """All Runs; none if nothing is leased."""


class _Death(msgspec.Struct):
    died_at: float
    reason: str


class Jobs:
    def __init__(self, connection: RedisConnection, runs: Runs, lease_seconds: float) -> None:
        self._connection = connection
        self._runs = runs
        self._lease_seconds = lease_seconds

    def record(self, job: str) -> JobRecord:
        """The record of a Job. Raises `NotFound`, also if its Group was dropped."""
        if not is_job_id(job):
            raise NotFound(f"{job!r} is not a job id", fix="a job id reads <run>/<group>/<member>")
        run_id = run_of(job)
        kind = self._stored_kind(job)
        pipe = self._connection.pipeline()
        ask_for_job(pipe, self._connection, job)
        pipe.lpos(self._tasks(run_id, kind), job)
        pipe.hget(self._connection.of_run(run_id, "lost"), job)
        pipe.hget(self._connection.of_run(run_id, "row_failed"), job)
        pipe.time()
        *told, position, lost, row_failed, (seconds, _) = self._connection.read(pipe)
        record = job_record(job, StoredJob(*told))
        if record is None or (record.state is JobState.QUEUED and position is None):
            raise self._no_such(job)
        if record.state is not JobState.QUEUED:
            return record
        avoids, left = avoided(lost, row_failed, seconds, self._lease_seconds)
        needs = read_kind(kind)
        return msgspec.structs.replace(
            record,
            queue_position=position,
            environment=needs.environment,
            tags=needs.tags,
            avoids=avoids,
            avoids_seconds=left,
        )

    def records(self, run_id: str, state: JobState, limit: int) -> list[JobRecord]:
        """At most `limit` Jobs of the Run; queued ones kind by kind, as they wait. Raises
        `NotFound`.

        One that is parked is not among those that are leased.
        """
        self._runs.read(run_id)
        if state is JobState.QUEUED:
            positions = self._queued(run_id, limit)
            return [
                msgspec.structs.replace(record, queue_position=positions[record.job_id])
                for record in self._records(positions)
                if record.state is state
            ]
        ids = sorted(self._ids(run_id, state))
        return [record for record in self._records(ids[:limit]) if record.state is state]

    def members(self, group: str, most: int) -> list[JobRecord]:
        """The first Jobs of the Group `<run>/<group>`. Raises `NotFound`, also for one that was
        dropped, or is in a Batch that was acknowledged."""
        run_id, group_id = run_of(group), group_of(group)
        members = min(self._runs.read(run_id).settings.members, most)
        records = self._records(job_id(run_id, group_id, member) for member in range(members))
        if not records:
            raise self._no_such(group)
        return records

    def contents(self, job: str) -> tuple[Prompt | None, Result | None]:
        """The Prompt and the Result of the Job, as far as both are kept."""
        run_id = run_of(job)
        pipe = self._connection.pipeline()
        pipe.hget(self._connection.of_run(run_id, "prompts"), group_of(job))
        pipe.hget(self._connection.of_run(run_id, "dead_prompts"), job)
        pipe.hget(self._connection.of_run(run_id, "results"), job)
        prompt, dead_prompt, result = self._connection.read(pipe)
        given = prompt or dead_prompt
        return (
            None if given is None else codec.decode(given, Prompt),
            None if result is None else codec.decode(result, Result),
        )

    def dead(self, run_id: str) -> list[DeadJob]:
        """The first Jobs of the Run that died, in the order of their ids. Raises `NotFound`."""
        self._runs.read(run_id)
        pipe = self._connection.pipeline()
        for name in ("dead", "dead_prompts", "history"):
            pipe.hgetall(self._connection.of_run(run_id, name))
        deaths, prompts, histories = self._connection.read(pipe)
        return [
            DeadJob(
                job_id=job.decode(),
                died_at=death.died_at,
                reason=death.reason,
                prompt=codec.decode(prompts[job], Prompt),
                attempts=attempts(histories.get(job)),
            )
            for job, death in ((job, codec.decode(deaths[job], _Death)) for job in sorted(deaths))
        ]

    def leased(self) -> Question[Leased]:
        """How many Jobs are leased, and the Runs of which they may be."""

        def put(pipe: Pipeline) -> None:
            pipe.zcard(self._connection.key("leases"))
            pipe.smembers(self._connection.key("runs"))

        return Question(put, _leased)

    def standing(self, leased: Leased) -> Standing:
        pipe = self._connection.pipeline()
        for run in leased.runs:
            pipe.scard(self._connection.of_run(run, "parked"))
        counted = zip(leased.runs, self._connection.read(pipe), strict=True)
        parked = {run: count for run, count in counted if count}
        return Standing(leased=leased.jobs, parked=parked)

    def stray_leases(self) -> tuple[str, ...]:
        """Leased Jobs whose agent server is not registered: there should be none."""
        runs = self._runs.ids()
        pipe = self._connection.pipeline()
        pipe.hkeys(self._connection.key("servers"))
        for run in runs:
            pipe.hgetall(self._connection.of_run(run, "holders"))
        servers, *held = self._connection.read(pipe)
        known = {server.decode() for server in servers}
        return tuple(
            job.decode()
            for holders in held
            for job, holder in holders.items()
            if server_of(holder.decode()) not in known
        )

    def _queued(self, run_id: str, limit: int) -> dict[str, int]:
        """The first queued Jobs of the Run -> the number of those of their kind before them."""
        by_place = self._connection.of_run(run_id, "next:all")
        kinds = self._connection.do(lambda r: r.zrange(by_place, 0, limit - 1))
        pipe = self._connection.pipeline()
        for kind in kinds:
            pipe.llen(self._tasks(run_id, kind))
        lengths, left = self._connection.read(pipe), limit
        for kind, length in zip(kinds, lengths, strict=True):
            if left > 0:
                pipe.lrange(self._tasks(run_id, kind), 0, min(left, length) - 1)
            left -= length
        return {
            job.decode(): position
            for jobs in self._connection.read(pipe)
            for position, job in enumerate(jobs)
        }

    def _stored_kind(self, job: str) -> bytes:
        """The kind of the Job, which it always has; empty if its Group is gone."""
        kinds = self._connection.of_run(run_of(job), "kinds")
        stored = self._connection.do(lambda r: r.hget(kinds, group_of(job))) or b""
        return stored.partition(b" ")[2]

    def _tasks(self, run_id: str, kind: bytes) -> str:
        return self._connection.of_run(run_id, f"tasks:{kind.decode()}")

    def _ids(self, run_id: str, state: JobState) -> set[str]:
        hashes = {
            JobState.LEASED: "holders",
            JobState.PARKED: "holders",
            JobState.ACCEPTED: "receipts",
            JobState.DEAD: "dead",
        }
        pipe = self._connection.pipeline()
        pipe.hkeys(self._connection.of_run(run_id, hashes[state]))
        pipe.smembers(self._connection.of_run(run_id, "parked"))
        ids, parked = map(set, self._connection.read(pipe))
        if state is JobState.PARKED:
            ids &= parked
        if state is JobState.LEASED:
            ids -= parked
        return {job.decode() for job in ids}

    def _records(self, ids: Iterable[str]) -> list[JobRecord]:
        """The records of these Jobs, without those that are nowhere."""
        jobs = list(ids)
        pipe = self._connection.pipeline()
        for job in jobs:
            ask_for_job(pipe, self._connection, job)
        answers, fields = self._connection.read(pipe), len(StoredJob._fields)
        stored = (StoredJob(*answers[i : i + fields]) for i in range(0, len(answers), fields))
        records = (job_record(job, each) for job, each in zip(jobs, stored, strict=True))
        return [record for record in records if record is not None]

    def _no_such(self, name: str) -> NotFound:
        """The error for the name of a Job or a Group that is not there, or not any more."""
        fed = self._connection.of_run(run_of(name), "fed")
        if not self._connection.do(lambda r: r.sismember(fed, group_of(name))):
            return NotFound(
                f"there is no {name!r}", fix="list the jobs of a run with `rollyard jobs`"
            )
        return NotFound(
            f"nothing is left of {name!r}: its batch was acknowledged, its group was dropped, or "
            "it was cancelled or never begun",
            fix="look at a trajectory before the ack, or let the trainer keep it",
        )


def _leased(answers: list[Any]) -> Leased:
    jobs, runs = answers
    return Leased(jobs, sorted(run.decode() for run in runs) if jobs else [])
