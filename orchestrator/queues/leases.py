"""The Leases: Jobs paired with Slots, until they are reported, lost, or give way.

- A Job dies when `max_infra_failures` attempts failed, or when it was lost with
  `MAX_SERVERS_LOST` different servers. Losing one server again counts as a failed attempt.
- What is lost while most servers are silent is not held against a Job, `MAX_EXCUSED` times at most.
- Parked Jobs keep their Slots for a trainer that lives; see `lend.lua` for when they give way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrator.ids import group_and_member, run_of
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.limits import MAX_REASON_CHARACTERS
from orchestrator.queues.records import lease_of
from orchestrator.queues.runs import Runs
from rollyard import codec
from rollyard.messages import (
    Assignment,
    Job,
    Lease,
    Outcome,
    Prompt,
    Receipt,
    Reported,
)
from rollyard.messages.result import AnyResult
from rollyard.messages.run import MAX_JOB_SECONDS

PARKED_FOR_LONG_SECONDS = 60.0
"""Time for which a Job may stand parked while a Run waits that holds fewer Slots for its weight."""
PARKED_IDLE_SECONDS = 600.0
"""Time for which a Job may stand parked while any Run waits for its Slot."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a search for silent agent servers."""

    at: float
    """Time of the search, in unix seconds by the clock of Redis."""
    nap_seconds: float
    """Time until the next search is due."""
    overdue: dict[str, str] = {}
    """Agent servers whose heartbeats are overdue -> when they were heard of last, as stored."""


class Leases:
    def __init__(self, connection: RedisConnection, runs: Runs, lease_seconds: float) -> None:
        self._connection = connection
        self._runs = runs
        self.lease_seconds = lease_seconds

    def lease(self, most: int = 1) -> list[Assignment]:
        """Pair the heads of the task queue with the heads of the server-availability queue."""
        paired = self._connection.run_script("lease", self.lease_seconds, most)
        return [self._assignment(each) for each in paired]

    def _assignment(self, paired: list[Any]) -> Assignment:
        lease = lease_of(*paired[:3])
        run_id = run_of(lease.job_id)
        group_id, member = group_and_member(lease.job_id)
        settings = self._runs.settings(run_id)
        job = Job(
            job_id=lease.job_id,
            run_id=run_id,
            group_id=group_id,
            member=member,
            prompt=codec.decode(paired[3], Prompt),
            sampling=settings.sampling,
            limits=settings.limits,
        )
        return Assignment(job=job, lease=lease)

    def wait_for_work(self, seconds: float) -> None:
        """Return when a Job and a Slot may be waiting, at the latest after `seconds`."""
        self._connection.wait(self._connection.key("work"), seconds)

    def give_back(self, lease: Lease, reason: str = "") -> None:
        """Requeue, at the head and uncharged, a Job that did not reach its server. The Slot returns
        with the next heartbeat of its server."""
        why = reason[:MAX_REASON_CHARACTERS]
        self._connection.run_script("give_back", lease.job_id, lease.slot, lease.attempt, why)

    def recalls(self) -> dict[str, int]:
        """Agent server -> number of its Jobs ahead for which other servers have free Slots, while
        no Job waits for these."""
        told = self._connection.run_script("recall")
        return {
            server.decode(): int(jobs) for server, jobs in zip(told[::2], told[1::2], strict=True)
        }

    def report(self, results: Sequence[AnyResult], *, more: bool = False) -> list[Reported]:
        """Store how attempts ended, and return an answer for each: `stale` if its Lease is lost.

        With `more` the Slot of a completed Job takes its next Job in the same move; a repeated
        report is told that Job again.
        """
        answers = self._connection.run_script(
            "report",
            self.lease_seconds if more else None,
            *(field for result in results for field in _fields(result)),
        )
        return [
            Reported(
                receipt=Receipt(receipt.decode()),
                assignment=self._assignment(paired) if paired else None,
            )
            for receipt, *paired in answers
        ]

    def expire(self, looked_at: float | None = None, ended: Mapping[str, str] = {}) -> Look:
        """Requeue, or bury, the Jobs of Leases past their deadline, and those of servers that have
        `ended`, each with when it was heard of last: one that was heard of since is left alone.

        Told when the caller looked last, it judges nobody if half a Lease went by since: somebody
        stood still meanwhile, and everybody has a Lease to be heard. The next look is due when a
        server is overdue or a Lease can expire next, at the latest after a quarter of a Lease.
        """
        pairs = (field for pair in ended.items() for field in pair)
        at, nap_seconds, *overdue = self._connection.run_script(
            "expire", self.lease_seconds, looked_at, *pairs
        )
        names = (each.decode() for each in overdue)
        return Look(
            at=float(at),
            nap_seconds=float(nap_seconds),
            overdue=dict(zip(names, names, strict=True)),
        )

    def lend(self) -> tuple[Lease, ...]:
        """Let parked Jobs give way where they must, and return the Leases that ended."""
        ended = self._connection.run_script("lend", PARKED_FOR_LONG_SECONDS, PARKED_IDLE_SECONDS)
        return tuple(lease_of(*lease) for lease in ended)

    def begun(self, run_id: str) -> dict[str, int]:
        """Leased Job -> the weight version that was served when it was leased."""
        holders, times = (self._connection.of_run(run_id, name) for name in ("holders", "times"))
        jobs = self._connection.do(lambda r: r.hkeys(holders))
        if not jobs:
            return {}
        told = self._connection.do(lambda r: r.hmget(times, jobs))
        parts = (
            (job.decode(), (each or b"").split()) for job, each in zip(jobs, told, strict=True)
        )
        return {job: int(time[1]) for job, time in parts if len(time) > 1}


def _fields(result: AnyResult) -> tuple[Any, ...]:
    """The Result as `report.lua` reads it."""
    lease = result.lease
    completed = result.outcome is Outcome.COMPLETED
    return (
        lease.job_id,
        lease.slot,
        lease.attempt,
        result.outcome,
        codec.encode(result) if completed else b"",
        result.reward,
        result.error[:MAX_REASON_CHARACTERS],
        _oldest_version(result),
        _seconds_on_slot(result),
        result.blame,
    )


def _seconds_on_slot(result: AnyResult) -> float | None:
    """Time on the Slot as the agent server measured it; None if it did not, or told an
    impossible one."""
    timings = result.timings
    total = timings.init_seconds + timings.run_seconds + timings.eval_seconds
    return total if 0 < total <= MAX_JOB_SECONDS else None


def _oldest_version(result: AnyResult) -> int | None:
    """Weight version of the oldest token; None if there is none, or it is not known."""
    sequences = result.trajectory.sequences if result.trajectory is not None else ()
    return min((span.version for each in sequences for span in each.weight_spans), default=None)
