"""The conclusions of collectors, as `conclude.lua` reads them, and what they do to Leases."""

from collections.abc import Iterable
from typing import Any

import msgspec

from orchestrator.ids import job_id
from orchestrator.queues.records import lease_of
from orchestrator.queues.stored_groups import GroupChanges
from orchestrator.sampling.decisions import (
    AnyDecision,
    Cancel,
    Close,
    Deliver,
    Drop,
    Enqueue,
    Hold,
    Open,
    Park,
    Remember,
    Requeue,
    RequeueAll,
    Retract,
    Why,
)
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.messages import Lease, RunSettings

Part = list[Any]

_NAMES: dict[type, str] = {
    Open: "open",
    Hold: "hold",
    Close: "close",
    Park: "park",
    Enqueue: "enqueue",
    Retract: "retract",
}

_REASONS: dict[Why, str] = {
    Why.HELD: "nothing of the run is wanted until the next batch",
    Why.AGED: "its tokens were too old for the batch",
    Why.REDUNDANT: "its group is complete without it",
    Why.FILTERED: "its group could not be effective any more",
    Why.DEAD: "a job of its group died",
    Why.CANCELLED: "an operator cancelled it",
    Why.SKIPPED: "the history of its prompt spoke against it",
    Why.CUT_SHORT: "the first members of its group spoke against the others",
    Why.DISCARDED: "a batch was complete without it, and the run keeps nothing",
    Why.CONSUMED: "the batch of its group was acknowledged",
    Why.CLOSED: "the run was closed",
}
"""The reason that the history of a stopped attempt gives to people."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of handling the oldest events of a Run."""

    after: int
    """`Run.concluded` when the events were read."""
    events: int
    state: SamplerState
    decisions: list[AnyDecision]


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The Leases that decisions were about, by what their servers are to be told."""

    stop: tuple[Lease, ...] = ()
    """They ended."""
    park: tuple[Lease, ...] = ()
    resume: tuple[Lease, ...] = ()


class WrittenDecisions:
    """The decisions of one conclusion, written down: `parts`, and the `blobs` they point into.

    What Lua does not look into it gets as bytes beside the rest: it could not tell an empty list
    from no fields, and reads no bytes within msgpack.
    """

    def __init__(self, decisions: Iterable[AnyDecision], settings: RunSettings) -> None:
        self.blobs: list[bytes] = []
        self._settings = settings
        self.parts = [part for decision in decisions for part in self._parts(decision)]

    def store(self, kind: str, changes: GroupChanges) -> None:
        """Let the Groups of a `kind`, open or complete, become what the sampler made of them."""
        if changes.nothing_else:
            self.parts.append(["empty", kind])
        if changes.gone:
            self.parts.append(["erase", kind, *changes.gone])
        for name, group in changes.written.items():
            self.blobs.append(group)
            self.parts.append(["write", kind, name, len(self.blobs)])

    def require_weights(self, least: int) -> None:
        """No Job of the Run begins under older ones."""
        self.parts.append(["least", least])

    def _blob(self, message: object) -> int:
        self.blobs.append(codec.encode(message))
        return len(self.blobs)

    def _parts(self, decision: AnyDecision) -> list[Part]:
        match decision:
            case Open() | Hold() | Close() | Park():
                return [[_NAMES[type(decision)]]]
            case Enqueue() | Retract():
                return [[_NAMES[type(decision)], *decision.job_ids]]
            case RequeueAll():
                return [["requeue_all", _REASONS[Why.HELD]]]
            case Requeue(job_ids=jobs, why=why):
                return [["requeue", _REASONS[why], *jobs]]
            case Cancel(job_ids=jobs, why=why):
                return [["cancel", _REASONS[why], *jobs]]
            case Drop(group_ids=groups, why=why):
                return [["drop", _REASONS[why], *self._jobs(group)] for group in groups]
            case Remember(row=row, tried=tried):
                return [["remember", row, self._blob(tried)]]
            case Deliver():
                return [self._delivery(decision)]

    def _jobs(self, group: str) -> list[str]:
        """All that the Group may have."""
        settings = self._settings
        return [job_id(settings.run_id, group, member) for member in range(settings.members)]

    def _delivery(self, decision: Deliver) -> Part:
        spent = decision.report.slot_seconds
        fates = msgspec.structs.asdict(spent)
        del fates["idle"], fates["surplus"]  # Redis measures one and replaces the other
        groups, report = self._blob(decision.groups), self._blob(decision.report)
        return ["deliver", decision.batch_id, groups, report, fates, spent.surplus]


def moved(told: list[list[Any]]) -> Moved:
    leases: dict[str, list[Lease]] = {"stop": [], "park": [], "resume": []}
    for what, *lease in told:
        leases[what.decode()].append(lease_of(*lease))
    return Moved(**{what: tuple(each) for what, each in leases.items()})
