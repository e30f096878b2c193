"""What a training step consumes, and what a trainer waiting for it is told."""

from rollyard.messages.base import Message, Name, Positive, check, check_name
from rollyard.messages.result import Result
from rollyard.messages.run import Prompt


class Group(Message, frozen=True):
    """A Prompt and the Results of its `group_size` Jobs, in member order."""

    group_id: str
    prompt: Prompt
    results: tuple[Result, ...]


class Counters(Message, frozen=True):
    """What became of a Run's work so far. Jobs are conserved:
    jobs_submitted = jobs_queued + jobs_leased + jobs_accepted + jobs_dead + jobs_dropped.
    """

    groups_kept: int = 0
    """Effective and delivered, or waiting for the next Batch."""
    groups_filtered: int = 0
    """Complete, but not effective."""
    groups_dead: int = 0
    """Abandoned with a dead Job."""
    groups_cancelled: int = 0
    """Abandoned because an operator cancelled a Job of theirs."""
    jobs_submitted: int = 0
    jobs_queued: int = 0
    jobs_leased: int = 0
    jobs_accepted: int = 0
    jobs_dead: int = 0
    jobs_dropped: int = 0
    """Cancelled for good."""
    attempts_stopped: int = 0
    """Running attempts stopped by early termination."""
    jobs_recycled: int = 0
    """Unfinished Jobs kept for the next step at early termination."""
    attempts_failed: int = 0
    """Attempts ended by an infrastructure failure."""
    results_refused: int = 0
    """Results that came after their attempt had lost its Lease."""
    rewards_sum: float = 0.0
    """Over jobs_accepted: the unfiltered mean reward is rewards_sum / jobs_accepted."""


class Batch(Message, frozen=True):
    """What one training step consumes. Fetchable again until it is acknowledged."""

    batch_id: str
    run_id: str
    groups: tuple[Group, ...]
    counters: Counters


class RunStatus(Message, frozen=True):
    """Where a Run stands; also what a trainer waiting for a Batch is told."""

    run_id: str
    batch_id: str | None
    """The Batch requested and not yet acknowledged."""
    requested_batch_size: int
    effective_groups: int
    """Ready for the requested Batch."""
    open_groups: int
    idle: bool
    """Nothing of the Run is queued, running or being collected."""
    prompts_wanted: int
    """Prompts to feed now."""
    batch_ready: bool
    counters: Counters
    waiting_for: str = ""
    """One sentence: what the Batch is waiting for."""


class BatchRequest(Message, frozen=True):
    batch_id: Name
    requested_batch_size: Positive

    def __post_init__(self) -> None:
        check_name(self.batch_id, "batch_id")
        check(
            self.requested_batch_size >= 1,
            f"requested_batch_size must be at least 1, got {self.requested_batch_size}",
        )
