"""The operator's part of the queues in Redis; see `operations.py` for what it promises."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import redis

from orchestrator.events import run_of
from orchestrator.queues.accounts import row_of
from orchestrator.queues.operations import Standing, reborn
from orchestrator.queues.redis_records import (
    attempts,
    avoided,
    job_record,
    jobs_ahead,
    lost_slots,
    server_state,
)
from orchestrator.queues.redis_runs import RedisRuns
from rollyard import codec
from rollyard.errors import NotFound
from rollyard.messages import (
    DeadJob,
    JobRecord,
    JobState,
    Prompt,
    Result,
    ServerCondition,
)


class _Death(msgspec.Struct):
    died_at: float
    reason: str


class RedisOperations(RedisRuns):
    def job(self, job_id: str) -> JobRecord:
        """Raises `NotFound`, also for a Job whose Group was dropped."""
        _check_job_id(job_id)
        run_id = run_of(job_id)

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            self._ask_for(pipe, job_id)
            pipe.lpos(self._of_run(run_id, "tasks"), job_id)
            pipe.hget(self._of_run(run_id, "lost"), job_id)
            pipe.hget(self._of_run(run_id, "row_failed"), job_id)
            pipe.time()
            return pipe.execute()

        *told, position, lost, row_failed, (seconds, _) = self._do(read)
        record = job_record(job_id, *told)
        if record is None or (record.state is JobState.QUEUED and position is None):
            raise self._no_such(job_id)
        if record.state is not JobState.QUEUED:
            return record
        avoids, left = avoided(lost, row_failed, seconds, self._lease_seconds)
        return msgspec.structs.replace(
            record, queue_position=position, avoids=avoids, avoids_seconds=left
        )

    def jobs(self, run_id: str, state: JobState, limit: int) -> list[JobRecord]:
        """At most `limit` Jobs of the Run; queued ones as they wait. Raises `NotFound`.

        One that is parked is not among those that are leased.
        """
        self.run(run_id)
        if state is JobState.QUEUED:
            tasks = self._of_run(run_id, "tasks")
            ids = [job.decode() for job in self._do(lambda r: r.lrange(tasks, 0, limit - 1))]
            return [
                msgspec.structs.replace(record, queue_position=position)
                for position, record in enumerate(self._records(ids))
                if record.state is state
            ]
        ids = sorted(self._ids(run_id, state))
        return [record for record in self._records(ids[:limit]) if record.state is state]

    def _ids(self, run_id: str, state: JobState) -> set[str]:
        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hkeys(self._of_run(run_id, hashes[state]))
            pipe.smembers(self._of_run(run_id, "parked"))
            return pipe.execute()

        hashes = {
            JobState.LEASED: "holders",
            JobState.PARKED: "holders",
            JobState.ACCEPTED: "receipts",
            JobState.DEAD: "dead",
        }
        ids, parked = map(set, self._do(read))
        if state is JobState.PARKED:
            ids &= parked
        if state is JobState.LEASED:
            ids -= parked
        return {job.decode() for job in ids}

    def members(self, group: str, most: int) -> list[JobRecord]:
        """The first Jobs of the Group `<run>/<group>`. Raises `NotFound`, also for one that was
        dropped, or is in a Batch that was acknowledged."""
        members = self.run(run_of(group)).settings.members
        records = self._records(f"{group}/{member}" for member in range(min(members, most)))
        if not records:
            raise self._no_such(group)
        return records

    def _no_such(self, name: str) -> NotFound:
        """The error for the name of a Job or a Group that is not there, or not any more."""
        run_id, group = name.split("/")[:2]
        if not self._do(lambda r: r.sismember(self._of_run(run_id, "fed"), group)):
            return NotFound(
                f"there is no {name!r}", fix="list the jobs of a run with `rollyard jobs`"
            )
        return NotFound(
            f"nothing is left of {name!r}: its batch was acknowledged, its group was dropped, or "
            "it was cancelled or never begun",
            fix="look at a trajectory before the ack, or let the trainer keep it",
        )

    def contents(self, job_id: str) -> tuple[Prompt | None, Result | None]:
        """What the Job was given and what it produced, as far as both are kept."""
        run_id, group, _ = job_id.split("/")

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hget(self._of_run(run_id, "prompts"), group)
            pipe.hget(self._of_run(run_id, "dead_prompts"), job_id)
            pipe.hget(self._of_run(run_id, "results"), job_id)
            return pipe.execute()

        prompt, dead_prompt, result = self._do(read)
        given = prompt or dead_prompt
        return (
            None if given is None else codec.decode(given, Prompt),
            None if result is None else codec.decode(result, Result),
        )

    def dead(self, run_id: str) -> list[DeadJob]:
        """Those that died first, in the order of their ids."""
        self.run(run_id)

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            for name in ("dead", "dead_prompts", "history"):
                pipe.hgetall(self._of_run(run_id, name))
            return pipe.execute()

        deaths, prompts, histories = self._do(read)
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

    def requeue(self, job_id: str) -> str:
        """Feed a dead Job's Prompt as a new Group with a fresh budget; returns the Group's id.

        The dead Jobs of the old Group are then counted as dropped. Raises `NotFound`.
        """
        run_id = run_of(job_id)
        settings = self.run(run_id).settings
        stored = self._do(lambda r: r.hget(self._of_run(run_id, "dead_prompts"), job_id))
        if stored is None:
            raise _not_dead(job_id)
        prompt = codec.decode(stored, Prompt)
        while True:  # until a name that the trainer has not given to a row of its own
            prompt = msgspec.structs.replace(prompt, prompt_id=reborn(prompt.prompt_id))
            fed = (codec.encode(prompt), settings.first_members, row_of(prompt, settings))
            made = self._run_script(
                "requeue", run_id, settings.members, job_id, prompt.prompt_id, *fed
            )
            if made == 0:
                raise _not_dead(job_id)
            if made == 1:
                return prompt.prompt_id

    def drain(self, server_id: str) -> None:
        """Lease nothing more to the server. Raises `NotFound`."""
        if not self._run_script("drain", server_id):
            raise NotFound(
                f"there is no agent server {server_id!r}", fix="list them with `rollyard servers`"
            )

    def standing(self) -> Standing:
        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.zcard(self._key("leases"))
            for run in runs:
                pipe.scard(self._of_run(run, "parked"))
            return pipe.execute()

        runs = self.run_ids()
        leased, *parked = self._do(read)
        counted = zip(runs, parked, strict=True)
        return Standing(leased=leased, parked={run: count for run, count in counted if count})

    def stray_leases(self) -> tuple[str, ...]:
        """Leased Jobs whose agent server is not registered: there should be none."""

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hkeys(self._key("servers"))
            for run in runs:
                pipe.hgetall(self._of_run(run, "holders"))
            return pipe.execute()

        runs = [run.decode() for run in self._do(lambda r: r.smembers(self._key("runs")))]
        servers, *held = self._do(read)
        return tuple(
            job.decode()
            for holders in held
            for job, holder in holders.items()
            if holder.rsplit(b"#", 1)[0] not in servers
        )

    def conditions(self) -> dict[str, ServerCondition]:
        """Of every registered server."""

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.time()
            pipe.zrange(self._key("seen"), 0, -1, withscores=True)
            for name in names:
                pipe.hgetall(self._key(name))
            return pipe.execute()

        counts = ("unreached", "reclaimed", "sizes", "loads", "lost_slots")
        names = ("held", "quarantine", "failing", *counts)
        (seconds, micros), seen, held, quarantine, failing, *told = self._do(read)
        unreached, reclaimed, sizes, loads, lost = told
        at = seconds + micros / 1e6
        return {
            server.decode(): ServerCondition(
                state=server_state(held.get(server, b"")),
                seen_seconds_ago=max(0.0, at - seen_at),
                failing_jobs=tuple(failing.get(server, b"").decode().split()),
                unreached=int(unreached.get(server, 0)),
                lost=lost_slots(lost.get(server)),
                jobs_ahead=jobs_ahead(sizes.get(server, b"0"), loads.get(server), lost.get(server)),
                let_back_in_seconds=max(0.0, float(quarantine.get(server, b"0").split()[0]) - at),
                reclaims=int(reclaimed.get(server + b" count", 0)),
                reclaim_seconds=float(reclaimed.get(server + b" seconds", 0)),
                worst_reclaim_seconds=float(reclaimed.get(server + b" worst", 0)),
            )
            for server, seen_at in seen
        }

    def _records(self, ids: Iterable[str]) -> list[JobRecord]:
        """The records of those of these Jobs that are somewhere."""
        jobs = list(ids)

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            for job in jobs:
                self._ask_for(pipe, job)
            return pipe.execute()

        answers = self._do(read)
        made = (job_record(job, *answers[7 * i : 7 * i + 7]) for i, job in enumerate(jobs))
        return [record for record in made if record is not None]

    def _ask_for(self, pipe: "redis.client.Pipeline", job: str) -> None:
        """What `job_record` makes a record of: seven answers."""
        run = run_of(job)
        for name in ("holders", "receipts", "dead", "times", "history"):
            pipe.hget(self._of_run(run, name), job)
        pipe.sismember(self._of_run(run, "parked"), job)
        pipe.hexists(self._of_run(run, "prompts"), job.split("/")[1])


def _check_job_id(job: str) -> None:
    if not re.fullmatch(r"[^/]+/[^/]+/\d+", job):
        raise NotFound(f"{job!r} is not a job id", fix="a job id reads <run>/<group>/<member>")


def _not_dead(job_id: str) -> NotFound:
    return NotFound(f"job {job_id!r} is not among the dead", fix="list them with `rollyard dead`")
