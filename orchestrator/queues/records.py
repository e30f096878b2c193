"""What Redis holds of a Job and a server, as messages."""

from rollyard import codec
from rollyard.messages import (
    AttemptOutcome,
    AttemptRecord,
    JobRecord,
    JobState,
    LostSlots,
    ServerState,
)


def job_record(
    job: str, holder: bytes | None, receipt: bytes | None, death: bytes | None,
    times: bytes | None, history: bytes | None, parked: bool, has_prompt: bool,
) -> JobRecord | None:  # fmt: skip
    """A member of a living Group that is nowhere else counts as queued: whoever did not find it on
    the task queue looks there."""
    ended = attempts(history)
    if holder is not None:
        slot, attempt = holder.decode().rsplit(" ", 1)
        running = AttemptRecord(
            attempt=int(attempt),
            server_id=slot.rsplit("#", 1)[0],
            leased_at=float((times or b"0").split()[0]),
            outcome=AttemptOutcome.RUNNING,
        )
        state = JobState.PARKED if parked else JobState.LEASED
        return JobRecord(job_id=job, state=state, attempts=(*ended, running))
    if receipt is not None:
        attempt, slot, reward = receipt.decode().split()
        accepted = _accepted_attempt(int(attempt), slot, times)
        return JobRecord(
            job_id=job,
            state=JobState.ACCEPTED,
            attempts=(*ended, accepted),
            reward=float(reward),
        )
    if death is not None:
        return JobRecord(job_id=job, state=JobState.DEAD, attempts=ended)
    if has_prompt:
        return JobRecord(job_id=job, state=JobState.QUEUED, attempts=ended)
    return None


def _accepted_attempt(attempt: int, slot: str, times: bytes | None) -> AttemptRecord:
    leased_at, ended_at = (float(time) for time in (times or b"0 0").split())
    return AttemptRecord(
        attempt=attempt,
        server_id=slot.rsplit("#", 1)[0],
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


def busy_slots(size: bytes, load: bytes | None, lost: bytes | None) -> int:
    """How many of a server's Slots run a Job."""
    return min(int(size) - lost_slots(lost).count, int(load or 0))


def jobs_ahead(size: bytes, load: bytes | None, lost: bytes | None) -> int:
    """How many of a server's Jobs wait there for a Slot."""
    return int(load or 0) - busy_slots(size, load, lost)


def server_state(held: bytes) -> ServerState:
    return ServerState(held.split()[0].decode()) if held else ServerState.SERVING
