"""Batches, their reports, and the status of the Run that a trainer waits for."""

import msgspec

from rollyard.messages.base import Count, Message, Name, Positive, check_least, check_name
from rollyard.messages.batch_metrics import metrics_of
from rollyard.messages.result import Result
from rollyard.messages.run import Prompt
from rollyard.messages.share import Share


class Group(Message, frozen=True):
    """A Prompt and the Results of its members in the Batch, in member order: `group_size` of them
    where the Batch counts Groups, at least one where it counts trajectories."""

    group_id: str
    prompt: Prompt
    results: tuple[Result, ...]


class SlotSeconds(Message, frozen=True):
    """Slot time by use, in seconds, from the request of a Batch until it was complete.

    A trajectory's time is booked once, in the Batch during which its fate is decided, also where
    it began under an earlier one.
    """

    useful: float = 0.0
    """Time of the trajectories in the Batch."""
    filtered: float = 0.0
    """Time of finished trajectories whose Groups were not effective, or were cut short."""
    surplus: float = 0.0
    """Time of trajectories of effective Groups that wait for the next Batch."""
    cancelled: float = 0.0
    """Time of stopped attempts, and of finished members that were restarted or thrown away."""
    failed: float = 0.0
    """Time of attempts that ended by an infrastructure failure."""
    idle: float = 0.0
    """Time of Slots without a Job, over all servers. A Job that waits on its server for a free
    Slot counts as running, so idle time is underestimated when Jobs are sent ahead."""


class Counters(Message, frozen=True):
    """Counts of a Run's Groups, members, Jobs and attempts since it began. Jobs are conserved:
    jobs_submitted = jobs_queued + jobs_leased + jobs_accepted + jobs_dead + jobs_dropped.
    """

    groups_kept: int = 0
    """Effective Groups, delivered or waiting for the next Batch."""
    groups_filtered: int = 0
    """Complete Groups that were not effective."""
    groups_dead: int = 0
    """Groups abandoned because one of their Jobs died."""
    groups_cancelled: int = 0
    """Groups abandoned because an operator cancelled one of their Jobs."""
    groups_skipped: int = 0
    """Groups never begun: their Prompt's history predicted that they would not be effective."""
    groups_cut_short: int = 0
    """Groups abandoned after their first stage: their other members would have cost more, per
    effective Group, than a new Group."""
    groups_discarded: int = 0
    """Groups dropped, unfinished or surplus, when a Batch was complete, under
    `Recycling.DISCARD`."""
    groups_fed: int = 0
    """Prompts that became Groups."""
    members_restarted: int = 0
    """Members sampled anew because their tokens were too old."""
    members_redundant: int = 0
    """Members cancelled because enough others of their Group had finished."""
    jobs_submitted: int = 0
    jobs_queued: int = 0
    jobs_unoffered: int = 0
    """The part of jobs_queued that no registered agent server can run."""
    jobs_leased: int = 0
    jobs_parked: int = 0
    """The part of jobs_leased that stands still until the trainer wants its next Batch."""
    jobs_accepted: int = 0
    jobs_dead: int = 0
    jobs_dropped: int = 0
    """Jobs cancelled for good."""
    attempts_stopped: int = 0
    """Running attempts stopped by early termination."""
    jobs_carried_over: int = 0
    """Unfinished Jobs kept for the next step at early termination."""
    attempts_failed: int = 0
    """Attempts ended by an infrastructure failure."""
    results_refused: int = 0
    """Results refused as stale: their attempt had lost its Lease."""
    rewards_sum: float = 0.0
    """Sum of the rewards of all accepted Jobs, so that the unfiltered mean reward is
    rewards_sum / jobs_accepted."""
    slot_seconds: SlotSeconds = SlotSeconds()
    """Sums over all Batches so far, except `surplus`, which is that of the last Batch."""


class Bias(Message, frozen=True):
    """Length bias of a Batch: its trajectories against all that were started.

    Short trajectories finish first, so that a sampler that takes what is finished prefers them.
    Lengths are seconds on a Slot.
    """

    trajectories: int = 0
    """Number of trajectories in the Batch."""
    mean_seconds: float = 0.0
    """Mean length of the Batch's trajectories."""
    started_mean_seconds: float = 0.0
    """Mean length of the trajectories started recently; those that were stopped, and so censored,
    count by the Kaplan-Meier estimate."""
    long_seconds: float = 0.0
    """Length beyond which a trajectory counts as long: about the 90th percentile of those
    started, and exactly their quantile 1 - `started_long_share`."""
    long_share: float = 0.0
    """Share of the Batch's trajectories that are long."""
    started_long_share: float = 0.0
    """Share of the trajectories started recently that are long."""
    ages: dict[int, int] = {}
    """Staleness, in weight versions, -> number of the Batch's trajectories. Negative where weights
    newer than those that the Batch updates sampled all tokens."""

    @property
    def mean_ratio(self) -> float:
        """Mean length in the Batch over that of all started: 1.0 is unbiased, 0.0 where nothing
        was started."""
        started = self.started_mean_seconds
        return self.mean_seconds / started if started else 0.0


class BatchReport(Message, frozen=True):
    """Cost and length bias of a Batch."""

    weight_version: int = 0
    """Weight version that this Batch will update."""
    seconds: float = 0.0
    """Time to sample the Batch: from its request, or the completion of the Batch before it if that
    was later, to its completion."""
    slots: int = 0
    """Slots of all agent servers at its completion."""
    slot_seconds: SlotSeconds = SlotSeconds()
    bias: Bias = Bias()


class AnyBatch(Message, frozen=True, kw_only=True):
    """A Batch, packed or not, without its Groups. It crosses no wire itself."""

    batch_id: str
    run_id: str
    counters: Counters
    report: BatchReport = BatchReport()


class Batch(AnyBatch, frozen=True):
    """The Groups of one training step. It can be fetched again until it is acknowledged."""

    groups: tuple[Group, ...]

    def metrics(self) -> dict[str, float]:
        """Numbers for a tracker of experiments, by name, such as "batch/reward".

        `batch/...` are of its trajectories: means, and `staleness` in weight versions. `run/...`
        are the `Counters` of the Run so far; `run/reward` is the mean of all Jobs accepted, of
        which no criterion has filtered any. `cost/...` and `bias/...` are of the report, in seconds
        and shares.
        """
        return metrics_of(self)


class PackedGroup(Message, frozen=True):
    """A Group as it leaves the orchestrator, which unpacks none of it: the same on the wire."""

    group_id: str
    prompt: msgspec.Raw
    results: tuple[msgspec.Raw, ...]


class PackedBatch(AnyBatch, frozen=True):
    """A Batch as it leaves the orchestrator: the same on the wire."""

    groups: tuple[PackedGroup, ...]


class FailingGroups(Message, frozen=True):
    """The Groups of a Run that died one after the other since a Job last succeeded."""

    groups: int
    causes: tuple[str, ...]
    """Distinct causes of the latest deaths, the latest first."""
    prompt_ids: tuple[str, ...]
    """Prompts of the latest Groups that died, the latest last."""

    @property
    def sentence(self) -> str:
        prompts = ", ".join(self.prompt_ids)
        return (
            f"{self.groups} groups died since a job last succeeded: {' / '.join(self.causes)} "
            f"(last prompts: {prompts})"
        )


class RunStatus(Message, frozen=True):
    """Status of a Run, for operators and for the trainer that waits for a Batch."""

    run_id: str
    batch_id: str | None
    """The oldest Batch requested and not yet acknowledged."""
    requested_batch_size: int
    """Groups requested by the Batch now being sampled, or by `batch_id` if none is; trajectories
    if those are the Run's unit."""
    effective_groups: int
    """Groups ready for the Batch now being sampled, or in `batch_id` if none is; trajectories if
    those are the Run's unit."""
    open_groups: int
    idle: bool
    """True if nothing of the Run is queued, running or being collected."""
    prompts_wanted: int
    """Number of Prompts to feed now."""
    batch_ready: bool
    """True if `batch_id` can be fetched."""
    counters: Counters
    batches: tuple[str, ...] = ()
    """Batches requested and not yet acknowledged, oldest first."""
    batches_ready: tuple[str, ...] = ()
    """The subset of `batches` that can be fetched."""
    last_report: BatchReport | None = None
    """Report of the last Batch completed, also after it was acknowledged."""
    failing: FailingGroups | None = None
    """Set when so many Groups died in a row that no more Prompts are wanted until the trainer goes
    on."""
    waiting_for: str = ""
    """One sentence that says what the Batch is waiting for."""
    unoffered: str = ""
    """One sentence on queued Jobs that no registered agent server can run; empty if each can."""
    never_offered: str = ""
    """One sentence on an environment, or a tag, that queued Jobs need and that no agent server has
    ever had; empty if there is none."""
    closed: bool = False
    """True if nothing of the Run will run again."""
    share: Share = Share()


class BatchRequest(Message, frozen=True):
    """The request that a Batch be sampled."""

    batch_id: Name
    """Name chosen by the trainer, unique in its Run: the same request again changes nothing."""
    requested_batch_size: Positive
    """Number of effective Groups, or of trajectories if those are the Run's unit."""
    weight_version: Count | None = None
    """Weight version that the Batch will update; its tokens may be up to `max_staleness` versions
    older. By default the version served now, plus one for each Batch not yet acknowledged."""

    def __post_init__(self) -> None:
        check_name(self.batch_id, "batch_id")
        check_least(self.requested_batch_size, 1, "requested_batch_size")
