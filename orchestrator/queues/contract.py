"""What the queues promise, in one place.

- At any moment: submitted = queued + leased + accepted + dead + dropped, for every Run. `Enqueue`
  adds Jobs to both sides; `Retract` moves one from accepted to queued; a parked Job is leased.
- A Lease is the right to report once: its `attempt` rises with every lease of the Job, and a
  report whose Lease is not the one held is refused as stale.
- A free Slot stands on the server-availability queue exactly once. A Slot is freed by the report
  of the attempt that occupied it, also when that report is stale, or by a heartbeat of its server
  that no longer names the attempt.
- An event of a Run and the change it tells of are written together; `conclude` removes events and
  writes everything decided on them together, unless somebody else was quicker.
- Jobs are parked by a conclusion alone, keep Lease and Slot, and go on when the Run is opened.
- An attempt that ended tells the sampler what it cost; one that never began tells nothing.
- Waits return early when woken and at their deadline otherwise; a wake is a hint to look again.
"""

import msgspec

from orchestrator.events import AnyEvent
from orchestrator.sampling.decisions import AnyDecision
from orchestrator.sampling.state import SamplerState
from rollyard.errors import Conflict, NotFound, Overtaken, RollyardError, TooLarge, Unavailable
from rollyard.messages import (
    BatchReport,
    Counters,
    Lease,
    RunSettings,
)

MAX_QUEUED_JOBS = 100_000
"""Of one Run: a trainer that feeds without being asked is made to wait."""


class Run(msgspec.Struct, frozen=True):
    """A Run as it stands."""

    settings: RunSettings
    state: SamplerState
    counters: Counters
    concluded: int
    """Events that the sampler's state comes from."""
    events_waiting: int
    """Events that the collector has not concluded."""
    open_groups: int
    sweeping: bool = False
    """It is closed, and what it was sampled from not forgotten yet."""
    set_aside: str = ""
    """Why its events cannot be concluded; empty if they can."""
    last_report: BatchReport | None = None
    """Of the Batch that was complete last."""
    model: str = ""
    """Digest of the model that its first Job began with; empty before, and where none was told."""
    trainer_left: bool = False
    trainer_silent_seconds: float = 0.0
    """Since the Run's trainer, if it ever had one, was heard of."""


class Runs(msgspec.Struct, frozen=True):
    """All Runs as they stand."""

    readable: tuple[Run, ...]
    broken: dict[str, RollyardError]
    """Run -> why it cannot be read."""


class PendingEvents(msgspec.Struct, frozen=True):
    """What a collector concludes at once."""

    run: Run
    events: list[AnyEvent]
    """The oldest ones, in order."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What the sampler made of the oldest events of a Run."""

    after: int
    """`Run.concluded` when the events were read."""
    events: int
    state: SamplerState
    decisions: list[AnyDecision]


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Leases that decisions were about: what their servers are to be told."""

    stop: tuple[Lease, ...] = ()
    """They ended."""
    park: tuple[Lease, ...] = ()
    resume: tuple[Lease, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A look at who is silent."""

    at: float
    """When it was, in the time of the queues."""
    nap_seconds: float
    """After which to look again."""


def overtaken(run_id: str) -> Overtaken:
    return Overtaken(f"somebody else concluded events of run {run_id!r}")


def run_is_closed(run_id: str) -> Conflict:
    return Conflict(f"run {run_id!r} is closed", fix="create a run with another run_id")


def no_such_batch(run_id: str, batch_id: str) -> NotFound:
    return NotFound(f"run {run_id!r} has no batch {batch_id!r} to fetch")


def never_fits(run_id: str, jobs: int, most: int) -> TooLarge:
    return TooLarge(
        f"{jobs} jobs fed to run {run_id!r} at once are more than the {most} that may be queued",
        fix="feed fewer prompts at once",
    )


def backlog_is_full(run_id: str, queued: int) -> Unavailable:
    return Unavailable(
        f"run {run_id!r} has {queued} queued jobs already",
        fix="feed the prompt again when some of them have run; `rollyard why` says what "
        "they wait for",
    )
