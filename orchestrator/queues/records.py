"""Jobs, Leases, servers and Batches as Redis holds them, turned into messages."""

from typing import NamedTuple

import msgspec
from redis.client import Pipeline

from orchestrator.ids import group_of, run_of, server_of
from orchestrator.queues.connection import RedisConnection
from rollyard import codec
from rollyard.messages import (
    AttemptOutcome,
    AttemptRecord,
    BatchReport,
    JobRecord,
    JobState,
    Lease,
    LostSlots,
    ServerState,
    Share,
)


def lease_of(job: bytes, slot: bytes, attempt: bytes | int) -> Lease:
    """A Lease as the scripts return it."""
    slot_id = slot.decode()
    return Lease(
        job_id=job.decode(), attempt=int(attempt), server_id=server_of(slot_id), slot=slot_id
    )


def batch_report(stored: bytes) -> BatchReport:
    """The sampler's report with what the queues alone know of the Batch: its time."""
    seconds, slots, idle, packed = stored.split(b" ", 3)
    report = codec.decode(packed, BatchReport)
    return msgspec.structs.replace(
        report,
        seconds=float(seconds),
        slots=int(slots),
        slot_seconds=msgspec.structs.replace(report.slot_seconds, idle=float(idle)),
    )


def share_of(stored: bytes | None) -> Share:
    """A Run's share of the Slots; of a Run that is not there, the one that a new Run has."""
    if stored is None:
        return Share()
    weight, max_slots, *_ = stored.split()
    return Share(weight=float(weight), max_slots=None if max_slots == b"-" else int(max_slots))


class StoredJob(NamedTuple):
    """The answers to `ask_for_job`, in their order."""

    holder: bytes | None
    receipt: bytes | None
    death: bytes | None
    times: bytes | None
    history: bytes | None
    parked: bool
    has_prompt: bool


def ask_for_job(pipe: Pipeline, connection: RedisConnection, job: str) -> None:
    run_id = run_of(job)
    for name in ("holders", "receipts", "dead", "times", "history"):
        pipe.hget(connection.of_run(run_id, name), job)
    pipe.sismember(connection.of_run(run_id, "parked"), job)
    pipe.hexists(connection.of_run(run_id, "prompts"), group_of(job))


def job_record(job: str, stored: StoredJob) -> JobRecord | None:
    """The record of a Job; None if its Group is gone. A member that is nowhere else counts as
    queued: it is for the caller to look for it on the task queue."""
    ended = attempts(stored.history)
    if stored.holder is not None:
        slot, attempt = stored.holder.decode().rsplit(" ", 1)
        running = AttemptRecord(
            attempt=int(attempt),
            server_id=server_of(slot),
            leased_at=float((stored.times or b"0").split()[0]),
            outcome=AttemptOutcome.RUNNING,
        )
        state = JobState.PARKED if stored.parked else JobState.LEASED
        return JobRecord(job_id=job, state=state, attempts=(*ended, running))
    if stored.receipt is not None:
        attempt, slot, reward = stored.receipt.decode().split()
        accepted = _accepted_attempt(int(attempt), slot, stored.times)
        return JobRecord(
            job_id=job,
            state=JobState.ACCEPTED,
            attempts=(*ended, accepted),
            reward=float(reward),
        )
    if stored.death is not None:
        return JobRecord(job_id=job, state=JobState.DEAD, attempts=ended)
    if stored.has_prompt:
        return JobRecord(job_id=job, state=JobState.QUEUED, attempts=ended)
    return None


def _accepted_attempt(attempt: int, slot: str, times: bytes | None) -> AttemptRecord:
    leased_at, ended_at = (float(time) for time in (times or b"0 0").split())
    return AttemptRecord(
        attempt=attempt,
        server_id=server_of(slot),
        leased_at=leased_at,
        ended_at=ended_at,
        outcome=AttemptOutcome.ACCEPTED,
    )


def avoided(
    lost: bytes | None, row_failed: bytes | None, now: float, lease_seconds: float
) -> tuple[tuple[str, ...], float]:
    """The servers on which a queued Job failed, by its loss or its row, and the seconds for which
    it leaves their Slots to others while another server may take it."""
    tried = lost or row_failed
    if tried is None:
        return (), 0.0
    failed_at, *servers = tried.decode().split()
    servers += (row_failed or b"").decode().split()[1:]
    left = float(failed_at) + lease_seconds - now
    return (tuple(dict.fromkeys(servers)), left) if left > 0 else ((), 0.0)


def attempts(history: bytes | None) -> tuple[AttemptRecord, ...]:
    return () if history is None else codec.decode(history, tuple[AttemptRecord, ...])


def lost_slots(told: bytes | None) -> LostSlots:
    if told is None:
        return LostSlots()
    count, _, reason = told.decode().partition(" ")
    return LostSlots(count=int(count), reason=reason)


def busy_slots(slots: int, load: bytes | None, lost: bytes | None, lent: bytes | None) -> int:
    """Number of a server's Slots that run a Job."""
    return min(slots - lost_slots(lost).count - int(lent or 0), int(load or 0))


def server_state(held: bytes) -> ServerState:
    return ServerState(held.split()[0].decode()) if held else ServerState.SERVING
