"""The operator's part of the in-memory queues; see `operations.py` for what it promises."""

import time

import msgspec

from orchestrator.events import group_and_member, run_of
from orchestrator.queues.memory_yard import MemoryYard
from orchestrator.queues.operations import Standing, reborn
from rollyard.errors import NotFound
from rollyard.messages import DeadJob, JobRecord, JobState, ServerCondition, Storage


class MemoryOperations(MemoryYard):
    def job(self, job_id: str) -> JobRecord:
        with self._changed:
            record = self._runs.get(run_of(job_id))
            found = record.record_of(job_id) if record is not None else None
            if found is None:
                raise NotFound(
                    f"there is no job {job_id!r}, or its group was dropped",
                    fix="list the jobs of a run with `rollyard jobs`",
                )
            return found

    def jobs(self, run_id: str, state: JobState, limit: int) -> list[JobRecord]:
        with self._changed:
            record = self._record(run_id)
            ids = {
                JobState.QUEUED: list(record.tasks),
                JobState.LEASED: sorted(set(record.holders) - set(record.parked())),
                JobState.PARKED: sorted(record.parked()),
                JobState.ACCEPTED: sorted(record.results),
                JobState.DEAD: sorted(record.dead),
            }[state]
            found = (record.record_of(job) for job in ids[:limit])
            return [job for job in found if job is not None]

    def dead(self, run_id: str) -> list[DeadJob]:
        with self._changed:
            record = self._record(run_id)
            return [
                msgspec.structs.replace(dead, attempts=tuple(record.history.get(job, ())))
                for job, dead in sorted(record.dead.items())
            ]

    def requeue(self, job_id: str) -> str:
        with self._changed:
            record = self._record(run_of(job_id))
            dead = record.dead.get(job_id)
            if dead is None:
                raise NotFound(
                    f"job {job_id!r} is not among the dead", fix="list them with `rollyard dead`"
                )
            for job in record.jobs(group_and_member(job_id)[0]):
                if record.dead.pop(job, None) is not None:
                    record.history.pop(job, None)
                    record.counts["dead"] -= 1
                    record.counts["dropped"] += 1
            group = reborn(dead.prompt.prompt_id)
            self._feed(record, msgspec.structs.replace(dead.prompt, prompt_id=group))
            return group

    def drain(self, server_id: str) -> None:
        with self._changed:
            if server_id not in self._servers:
                raise NotFound(
                    f"there is no agent server {server_id!r}",
                    fix="list them with `rollyard servers`",
                )
            self._health.drain(server_id)
            self._withdraw(server_id)

    def storage(self) -> Storage:
        return Storage(kind="memory", version="0", at=time.time(), appendonly="no")

    def standing(self) -> Standing:
        with self._changed:
            parked = {run_id: len(record.parked()) for run_id, record in self._runs.items()}
            return Standing(
                leased=len(self._leases),
                parked={run: count for run, count in parked.items() if count},
            )

    def stray_leases(self) -> tuple[str, ...]:
        with self._changed:
            held = [lease for run in self._runs.values() for lease in run.holders.values()]
            return tuple(lease.job_id for lease in held if lease.server_id not in self._servers)

    def conditions(self) -> dict[str, ServerCondition]:
        with self._changed:
            return {
                server: self._health.condition(server, seen) for server, seen in self._seen.items()
            }
