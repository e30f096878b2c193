"""Jobs in Redis: leased, reported, and concluded."""

from collections.abc import Sequence
from typing import Any

import msgspec

from orchestrator.queues.accounts import oldest_version, seconds_on_slot
from orchestrator.queues.contract import Conclusion, Look, Moved, overtaken
from orchestrator.queues.operations import MAX_REASON_CHARACTERS
from orchestrator.queues.redis_decisions import WrittenDecisions
from orchestrator.queues.redis_runs import RedisRuns
from orchestrator.queues.redis_trainers import lease_of
from orchestrator.queues.stored_groups import changes_of
from rollyard import codec
from rollyard.messages import (
    Assignment,
    Job,
    Lease,
    Outcome,
    Prompt,
    Receipt,
    Reported,
    Result,
)

MAX_STOPPED_AT_ONCE = 64
"""Jobs of a Run that is closed: Redis serves nobody else meanwhile."""


class RedisJobs(RedisRuns):
    def lease(self, most: int = 1) -> list[Assignment]:
        """Pair the heads of the task queue with the heads of the server-availability queue."""
        paired = self._run_script("lease", self._lease_seconds, most)
        return [self._assignment(each) for each in paired]

    def _assignment(self, paired: list[Any]) -> Assignment:
        lease = lease_of(*paired[:3])
        run_id, group_id, member = lease.job_id.split("/")
        settings = self._settings_of(run_id)
        job = Job(
            job_id=lease.job_id,
            run_id=run_id,
            group_id=group_id,
            member=int(member),
            prompt=codec.decode(paired[3], Prompt),
            sampling=settings.sampling,
            limits=settings.limits,
        )
        return Assignment(job=job, lease=lease)

    def give_back(self, lease: Lease, reason: str = "") -> None:
        """The assignment did not reach its server: the Job waits again, first, not charged.

        The Slot returns with the next heartbeat of its server.
        """
        why = reason[:MAX_REASON_CHARACTERS]
        self._run_script("give_back", lease.job_id, lease.slot, lease.attempt, why)

    def expire(self, looked_at: float | None = None) -> Look:
        """Requeue, or bury, the Jobs of Leases past their deadline.

        Told when the caller looked last, it judges nobody if half a Lease went by since: somebody
        stood still meanwhile, and everybody has a Lease to be heard. The next look is due when the
        next Lease can expire, at the latest after a quarter of a Lease.
        """
        last = "" if looked_at is None else repr(looked_at)
        at, nap_seconds = self._run_script("expire", self._lease_seconds, last)
        return Look(at=float(at), nap_seconds=float(nap_seconds))

    def renew(self) -> None:
        """Count every server and Lease as heard of now: before, no heartbeat could arrive."""
        self._run_script("renew", self._lease_seconds)

    def wait_for_work(self, seconds: float) -> None:
        """Return when a Job and a Slot may be waiting, at the latest after `seconds`."""
        self._wait(self._key("work"), seconds)

    def report(self, results: Sequence[Result], *, more: bool = False) -> list[Reported]:
        """Store how attempts ended; an answer for each, `stale` if its Lease is not held any more.

        With `more` the Slot of a completed Job takes its next Job in the same move; a repeated
        report is told that Job again.
        """
        answers = self._run_script(
            "report",
            self._lease_seconds if more else "",
            *(field for result in results for field in _fields(result)),
        )
        return [
            Reported(
                receipt=Receipt(receipt.decode()),
                assignment=self._assignment(paired) if paired else None,
            )
            for receipt, *paired in answers
        ]

    def wait_for_events(self, seconds: float) -> str | None:
        """A Run that may have events, or None after `seconds`."""
        popped = self._wait(self._key("events"), seconds)
        return None if popped is None else popped.decode()

    def conclude(self, run_id: str, conclusion: Conclusion) -> Moved:
        """Remove the events, store the state, carry out the decisions: all or nothing.

        Batches that the state does not hold as delivered are forgotten. A Run with events left, or
        with such as the decisions brought about, wakes a collector again. Raises `Conflict` when
        somebody else has concluded since the state was read.
        """
        state, script = (
            conclusion.state,
            WrittenDecisions(conclusion.decisions, self._settings_of(run_id)),
        )
        if state.dead_in_a_row:
            script.parts.append(["tell"])
        script.store("open", changes_of(state.open))
        script.store("complete", changes_of(state.complete))
        script.require_weights(state.min_weights(self._settings_of(run_id).max_staleness))
        moved = self._run_script(
            "conclude",
            run_id,
            conclusion.after,
            conclusion.events,
            codec.encode(msgspec.structs.replace(state, open={}, complete={})),
            int(state.closed),
            codec.encode(script.parts),
            codec.encode(list(state.delivered)),
            *script.blobs,
        )
        if moved is None:
            raise overtaken(run_id)
        return _moved(moved)

    def sweep(self, run_id: str, most: int = MAX_STOPPED_AT_ONCE) -> Moved:
        """Stop some of a closed Run's Jobs; when none is left, forget what it was sampled from.

        While some are left, the Run wakes a collector again.
        """
        return _moved(self._run_script("sweep", run_id, most))


def _moved(told: list[list[Any]]) -> Moved:
    moved: dict[str, list[Lease]] = {"stop": [], "park": [], "resume": []}
    for what, *lease in told:
        moved[what.decode()].append(lease_of(*lease))
    return Moved(**{what: tuple(leases) for what, leases in moved.items()})


def _fields(result: Result) -> tuple[Any, ...]:
    """The Result as `report.lua` reads it."""
    lease = result.lease
    completed = result.outcome is Outcome.COMPLETED
    version, seconds = oldest_version(result), seconds_on_slot(result)
    return (
        lease.job_id,
        lease.slot,
        lease.attempt,
        result.outcome,
        codec.encode(result) if completed else b"",
        repr(result.reward),
        result.error[:MAX_REASON_CHARACTERS],
        "" if version is None else version,
        "" if seconds is None else repr(seconds),
        result.blame,
    )
