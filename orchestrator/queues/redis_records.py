"""What Redis holds of a Job and a server, as messages."""

from orchestrator.events import group_and_member
from rollyard import codec
from rollyard.messages import (
    Attempt,
    AttemptOutcome,
    JobRecord,
    JobState,
    Result,
    ServerState,
)


def job_record(
    job: str, holder: bytes | None, result: bytes | None, death: bytes | None,
    times: bytes | None, history: bytes | None, parked: bool, has_prompt: bool,
) -> JobRecord | None:  # fmt: skip
    ended = attempts(history)
    if holder is not None:
        slot, attempt = holder.decode().rsplit(" ", 1)
        running = Attempt(
            attempt=int(attempt),
            server_id=slot.rsplit("#", 1)[0],
            leased_at=float((times or b"0").split()[0]),
            outcome=AttemptOutcome.RUNNING,
        )
        state = JobState.PARKED if parked else JobState.LEASED
        return JobRecord(job_id=job, state=state, attempts=(*ended, running))
    if result is not None:
        accepted = codec.decode(result, Result)
        return JobRecord(
            job_id=job,
            state=JobState.ACCEPTED,
            attempts=(*ended, _accepted_attempt(accepted, times)),
            reward=accepted.reward,
        )
    if death is not None:
        return JobRecord(job_id=job, state=JobState.DEAD, attempts=ended)
    if has_prompt and group_and_member(job):
        return JobRecord(job_id=job, state=JobState.QUEUED, attempts=ended)
    return None


def _accepted_attempt(result: Result, times: bytes | None) -> Attempt:
    leased_at, ended_at = (float(time) for time in (times or b"0 0").split())
    return Attempt(
        attempt=result.lease.attempt,
        server_id=result.lease.server_id,
        leased_at=leased_at,
        ended_at=ended_at,
        outcome=AttemptOutcome.ACCEPTED,
    )


def attempts(history: bytes | None) -> tuple[Attempt, ...]:
    return () if history is None else codec.decode(history, tuple[Attempt, ...])


def server_state(held: bytes) -> ServerState:
    return ServerState(held.split()[0].decode()) if held else ServerState.SERVING
