"""The Batches that were delivered and are not acknowledged."""

from collections.abc import Iterator

import msgspec

from orchestrator.ids import job_id
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.records import batch_report
from orchestrator.sampling.decisions import Chosen
from rollyard import codec
from rollyard.errors import NotFound
from rollyard.messages import BatchReport, PackedGroup

GROUPS_READ_AT_ONCE = 64


class DeliveredBatches:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def groups(self, run_id: str, batch_id: str) -> tuple[PackedGroup, ...]:
        """The Groups of a delivered Batch, with the Results of the members that it has.

        Raises `NotFound`, also when it was just acknowledged.
        """
        batches = self._connection.of_run(run_id, "batches")
        stored = self._connection.do(lambda r: r.hget(batches, batch_id))
        chosen = [] if stored is None else codec.decode(stored, list[Chosen])
        groups: list[PackedGroup] = []
        for first in range(0, len(chosen), GROUPS_READ_AT_ONCE):
            groups += self._groups(run_id, chosen[first : first + GROUPS_READ_AT_ONCE])
        if not groups or len(groups) < len(chosen):
            raise _no_such_batch(run_id, batch_id)
        return tuple(groups)

    def _groups(self, run_id: str, chosen: list[Chosen]) -> Iterator[PackedGroup]:
        """The chosen Groups, without those that were dropped."""
        jobs = [job_id(run_id, each.group_id, member) for each in chosen for member in each.members]
        pipe = self._connection.pipeline()
        names = [each.group_id for each in chosen]
        pipe.hmget(self._connection.of_run(run_id, "prompts"), names)
        pipe.hmget(self._connection.of_run(run_id, "results"), jobs)
        prompts, stored = self._connection.read(pipe)
        results = iter(stored)
        for each, prompt in zip(chosen, prompts, strict=True):
            members = [next(results) for _ in each.members]
            if prompt is not None:
                yield PackedGroup(
                    group_id=each.group_id,
                    prompt=msgspec.Raw(prompt),
                    results=tuple(map(msgspec.Raw, members)),
                )

    def report(self, run_id: str, batch_id: str) -> BatchReport:
        """The report on a delivered Batch. Raises `NotFound`."""
        reports = self._connection.of_run(run_id, "reports")
        stored = self._connection.do(lambda r: r.hget(reports, batch_id))
        if stored is None:
            raise _no_such_batch(run_id, batch_id)
        return batch_report(stored)


def _no_such_batch(run_id: str, batch_id: str) -> NotFound:
    return NotFound(f"run {run_id!r} has no batch {batch_id!r} to fetch")
