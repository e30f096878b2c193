"""The conclusions of collectors, as `conclude.lua` reads them, and what they do to Leases."""

from typing import Any

import msgspec

from orchestrator.queues.connection import as_text
from orchestrator.queues.records import lease_of
from orchestrator.queues.stored_groups import GroupChanges, changes_of
from orchestrator.sampling.decisions import AnyDecision, Deliver
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.messages import Lease, RunSettings


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of handling the oldest events of a Run."""

    after: int
    """`Run.concluded` when the events were read."""
    events: int
    state: SamplerState
    decisions: list[AnyDecision]


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The Leases that a move affected, by the order that their agent servers get."""

    stop: tuple[Lease, ...] = ()
    """Leases that ended: their attempts must stop."""
    park: tuple[Lease, ...] = ()
    resume: tuple[Lease, ...] = ()


class WrittenConclusion(msgspec.Struct, frozen=True, kw_only=True):
    """A conclusion as `conclude.lua` reads it, but for the events and the sampler's state."""

    decisions: list[object]
    open: GroupChanges
    complete: GroupChanges
    batches: list[str]
    """Batches that are kept."""
    members: int
    """Number of Jobs that a Group may have."""
    least: int
    """Weight version below which no Job of the Run begins."""
    has_news: bool
    """Whether the trainer has something to look at, whatever was decided."""


def written(conclusion: Conclusion, settings: RunSettings) -> WrittenConclusion:
    state = conclusion.state
    return WrittenConclusion(
        decisions=[_written(decision) for decision in conclusion.decisions],
        open=changes_of(state.open),
        complete=changes_of(state.complete),
        batches=list(state.delivered),
        members=settings.members,
        least=state.min_weights(settings.max_staleness),
        has_news=state.dead_in_a_row > 0,
    )


def _written(decision: AnyDecision) -> object:
    if not isinstance(decision, Deliver):
        return decision
    # Lua could not tell an empty list from an empty mapping: it stores these as they come.
    groups, report = (as_text(codec.encode(each)) for each in (decision.groups, decision.report))
    return ["deliver", decision.batch_id, groups, report, decision.report.slot_seconds]


def moved(told: list[list[Any]]) -> Moved:
    leases: dict[str, list[Lease]] = {"stop": [], "park": [], "resume": []}
    for what, *lease in told:
        leases[what.decode()].append(lease_of(*lease))
    return Moved(**{what: tuple(each) for what, each in leases.items()})
