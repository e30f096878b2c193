"""What a training step consumes, and what a trainer waiting for it is told."""

from rollyard.messages.base import Count, Message, Name, Positive, check, check_name
from rollyard.messages.result import Result
from rollyard.messages.run import Prompt


class Group(Message, frozen=True):
    """A Prompt and the Results of its members in the Batch, in member order: `group_size` of them
    where the Batch counts Groups, at least one where it counts trajectories."""

    group_id: str
    prompt: Prompt
    results: tuple[Result, ...]


class SlotSeconds(Message, frozen=True):
    """Where the time of the Slots went, in seconds, from the request of a Batch until it was
    complete. Time of trajectories begun for earlier Batches counts where it is decided on."""

    useful: float = 0.0
    """Trajectories in the Batch."""
    filtered: float = 0.0
    """Finished trajectories of Groups that were not effective, or were cut short."""
    surplus: float = 0.0
    """Trajectories of effective Groups that wait for the next Batch."""
    cancelled: float = 0.0
    """Attempts stopped, and finished members thrown away: restarted, redundant, discarded."""
    failed: float = 0.0
    """Attempts that ended by an infrastructure failure."""
    idle: float = 0.0
    """Slots without a Job, of all servers. A Job that waits on its server for a free Slot counts as
    if it ran, so that with Jobs ahead this is less than the truth."""


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
    groups_skipped: int = 0
    """Never begun: their Prompt's history spoke against them."""
    groups_cut_short: int = 0
    """Abandoned after their first stage."""
    groups_discarded: int = 0
    """Unfinished, or not needed, when a Batch was complete, with `Recycling.DISCARD`."""
    groups_fed: int = 0
    """Prompts that became Groups."""
    members_restarted: int = 0
    """Begun again because their tokens were too old."""
    members_redundant: int = 0
    """Cancelled because enough others of their Group had finished."""
    jobs_submitted: int = 0
    jobs_queued: int = 0
    jobs_leased: int = 0
    jobs_parked: int = 0
    """Of jobs_leased: they stand still until the trainer wants its next Batch."""
    jobs_accepted: int = 0
    jobs_dead: int = 0
    jobs_dropped: int = 0
    """Cancelled for good."""
    attempts_stopped: int = 0
    """Running attempts stopped by early termination."""
    jobs_carried_over: int = 0
    """Unfinished Jobs kept for the next step at early termination."""
    attempts_failed: int = 0
    """Attempts ended by an infrastructure failure."""
    results_refused: int = 0
    """Results that came after their attempt had lost its Lease."""
    rewards_sum: float = 0.0
    """Over jobs_accepted: the unfiltered mean reward is rewards_sum / jobs_accepted."""
    slot_seconds: SlotSeconds = SlotSeconds()
    """Over all Batches so far; only `surplus` is what waited when the last one was complete."""


class Bias(Message, frozen=True):
    """How the trajectories in a Batch compare with all that were started: short ones finish first,
    so that a sampler that is not careful prefers them. Lengths are seconds on a Slot."""

    trajectories: int = 0
    mean_seconds: float = 0.0
    started_mean_seconds: float = 0.0
    """Of all started lately; those that were stopped count by the Kaplan-Meier estimate."""
    long_seconds: float = 0.0
    """About one in ten of all started is longer: exactly `started_long_share`."""
    long_share: float = 0.0
    """Of the Batch's trajectories, longer than `long_seconds`."""
    started_long_share: float = 0.0
    ages: dict[int, int] = {}
    """Weight versions behind -> trajectories of the Batch; negative where weights newer than those
    that the Batch updates sampled all of their tokens."""

    @property
    def mean_ratio(self) -> float:
        """1.0 is without bias; 0.0 where nothing was started."""
        started = self.started_mean_seconds
        return self.mean_seconds / started if started else 0.0


class BatchReport(Message, frozen=True):
    """What a Batch cost, and whom it prefers."""

    weight_version: int = 0
    """Those that the Batch updates."""
    seconds: float = 0.0
    """From its request, or from when the Batch before it was complete, until it was complete."""
    slots: int = 0
    """When it was complete."""
    slot_seconds: SlotSeconds = SlotSeconds()
    bias: Bias = Bias()


class Batch(Message, frozen=True):
    """What one training step consumes. Fetchable again until it is acknowledged."""

    batch_id: str
    run_id: str
    groups: tuple[Group, ...]
    counters: Counters
    report: BatchReport = BatchReport()


class FailingGroups(Message, frozen=True):
    """Groups of a Run that died since a Job succeeded."""

    groups: int
    causes: tuple[str, ...]
    """Different ones of the last of them, the latest first."""
    prompt_ids: tuple[str, ...]
    """Of the last of them."""

    @property
    def sentence(self) -> str:
        prompts = ", ".join(self.prompt_ids)
        return (
            f"{self.groups} groups died since a job last succeeded: {' / '.join(self.causes)} "
            f"(last prompts: {prompts})"
        )


class RunStatus(Message, frozen=True):
    """Where a Run stands; also what a trainer waiting for a Batch is told."""

    run_id: str
    batch_id: str | None
    """The oldest Batch requested and not yet acknowledged."""
    requested_batch_size: int
    """Of the Batch that is being sampled, else of `batch_id`."""
    effective_groups: int
    """Ready for the Batch that is being sampled, else in `batch_id`; trajectories, if those are
    the Run's unit."""
    open_groups: int
    idle: bool
    """Nothing of the Run is queued, running or being collected."""
    prompts_wanted: int
    """Prompts to feed now."""
    batch_ready: bool
    """`batch_id` can be fetched."""
    counters: Counters
    batches: tuple[str, ...] = ()
    """All requested and not yet acknowledged, oldest first."""
    batches_ready: tuple[str, ...] = ()
    """Those of `batches` that can be fetched."""
    last_report: BatchReport | None = None
    """Of the Batch that was complete last, also after it was acknowledged."""
    failing: FailingGroups | None = None
    """Set when so many Groups died in a row that no more Prompts are wanted until the trainer goes
    on."""
    waiting_for: str = ""
    """One sentence: what the Batch is waiting for."""
    closed: bool = False
    """Nothing of it will run again."""


class BatchRequest(Message, frozen=True):
    batch_id: Name
    requested_batch_size: Positive
    weight_version: Count | None = None
    """The weights that the Batch will update: its members may lie `max_staleness` behind them.
    Left out, it is the version served now, and one more for each Batch not yet acknowledged."""

    def __post_init__(self) -> None:
        check_name(self.batch_id, "batch_id")
        check(
            self.requested_batch_size >= 1,
            f"requested_batch_size must be at least 1, got {self.requested_batch_size}",
        )
