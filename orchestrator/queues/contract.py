"""What the queues promise, in one place.

- At any moment: submitted = queued + leased + accepted + dead + dropped, for every Run. `Enqueue`
  adds Jobs to both sides; `Restart` moves one from accepted to queued; a parked Job is leased.
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

from collections.abc import Sequence
from typing import Protocol

import msgspec

from orchestrator.events import AnyEvent
from orchestrator.queues.operations import Operations
from orchestrator.sampling.decisions import AnyDecision
from orchestrator.sampling.state import SamplerState
from rollyard.errors import Conflict, NotFound, Unavailable
from rollyard.messages import (
    AgentServer,
    Assignment,
    BatchReport,
    Counters,
    Group,
    Heartbeat,
    HeartbeatReply,
    Lease,
    LLMNode,
    Prompt,
    Reported,
    Result,
    RunSettings,
)

MOST_QUEUED_JOBS = 100_000
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
    last_report: BatchReport | None = None
    """Of the Batch that was complete last."""


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


class Queues(Operations, Protocol):
    # Runs and their trainer

    def create_run(self, settings: RunSettings) -> None:
        """Idempotent for equal settings. Raises `Conflict` when the Run exists with others."""

    def run_ids(self) -> list[str]: ...

    def run(self, run_id: str) -> Run:
        """Raises `NotFound`."""

    def submit(
        self, run_id: str, prompts: Sequence[Prompt], *, most_queued: int = MOST_QUEUED_JOBS
    ) -> list[bool]:
        """Put the Jobs of new Groups' first members on the task queue; False for a Prompt that was
        fed before.

        All of them are taken or none: raises `Conflict` when the Run is closed and `Unavailable`
        when `most_queued` of its Jobs wait already.
        """

    def prompts(self, run_id: str) -> list[str]:
        """Ids of the Run's Prompts that were fed, and are neither dropped nor acknowledged."""

    def begun(self, run_id: str) -> dict[str, int]:
        """Leased Job -> the weight version that was served when it was leased."""

    def tell(self, run_id: str, event: AnyEvent) -> None:
        """Put what the trainer asks for in the order of the Run's events."""

    def batch(self, run_id: str, batch_id: str) -> tuple[Group, ...]:
        """The Groups of a delivered Batch, with the Results of the members that it has.

        Raises `NotFound`, also when it was just acknowledged.
        """

    def batch_report(self, run_id: str, batch_id: str) -> BatchReport:
        """Of a delivered Batch. Raises `NotFound`."""

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        """Return when the Run may want Prompts or have a Batch, at the latest after `seconds`."""

    def wait_for_conclusion(self, run_id: str, seconds: float) -> None:
        """Return when something of the Run may have been concluded, at the latest after
        `seconds`."""

    # Servers

    def register(self, server: AgentServer) -> None:
        """A server starts with all its Slots free; what it held before is requeued and charged.

        The same incarnation again changes nothing: it did not hear the answer.
        """

    def leave(self, server_id: str) -> None:
        """A server goes; the Jobs that it held are requeued and not charged."""

    def servers(self) -> list[AgentServer]: ...

    def busy_slots(self) -> dict[str, int]:
        """Server id -> how many of its Slots run a Job."""

    def free_slots(self) -> int: ...

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Extend the Leases named; tell which of them are no longer held, and which are parked."""

    def register_llm_node(self, node: LLMNode) -> None: ...

    def llm_nodes(self) -> list[LLMNode]: ...

    def weights(self) -> int:
        """The weight version that is served, as far as anybody has told."""

    def set_weights(self, version: int) -> None: ...

    # Dispatch

    def lease(self, most: int = 1) -> list[Assignment]:
        """Pair the heads of the task queue with the heads of the server-availability queue."""

    def give_back(self, lease: Lease, reason: str = "") -> None:
        """The assignment did not reach its server: the Job waits again, first, not charged.

        The Slot returns with the next heartbeat of its server.
        """

    def expire(self) -> float:
        """Requeue, or bury, the Jobs of Leases past their deadline.

        Returns the seconds after which to look again: until the next Lease can expire, at most a
        quarter of a Lease, so that no outage in between is long enough to silence a server unseen.
        """

    def renew(self) -> None:
        """Count every server and Lease as heard of now: before, no heartbeat could arrive."""

    def wait_for_work(self, seconds: float) -> None:
        """Return when a Job and a Slot may be waiting, at the latest after `seconds`."""

    # Results

    def report(self, results: Sequence[Result], *, more: bool = False) -> list[Reported]:
        """Store how attempts ended; an answer for each, `stale` if its Lease is not held any more.

        With `more` the Slot of a completed Job takes its next Job in the same move; a repeated
        report is told that Job again.
        """

    def wait_for_events(self, seconds: float) -> str | None:
        """A Run that may have events, or None after `seconds`."""

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        """The oldest events not yet concluded; they stay first until they are."""

    def conclude(self, run_id: str, conclusion: Conclusion) -> Moved:
        """Remove the events, store the state, carry out the decisions: all or nothing.

        Batches that the state does not hold as delivered are forgotten. A Run with events left, or
        with such as the decisions brought about, wakes a collector again. Raises `Conflict` when
        somebody else has concluded since the state was read.
        """


def run_is_closed(run_id: str) -> Conflict:
    return Conflict(f"run {run_id!r} is closed", fix="create a run with another run_id")


def no_such_batch(run_id: str, batch_id: str) -> NotFound:
    return NotFound(f"run {run_id!r} has no batch {batch_id!r} to fetch")


def backlog_is_full(run_id: str, queued: int) -> Unavailable:
    return Unavailable(
        f"run {run_id!r} has {queued} queued jobs already",
        fix="feed the prompt again when some of them have run; `rollyard why` says what "
        "they wait for",
    )
