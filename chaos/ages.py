"""Checks of weight versions and of parking, for `checker`."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from chaos import work
from chaos.history import Event
from chaos.trainer import Trained


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """Number of attempts that were parked, and of those by the end of their parking."""

    parked: int = 0
    resumed: int = 0
    stopped: int = 0
    """Attempts stopped while parked, because nobody wanted them any more."""
    lost: int = 0
    """Attempts lost with their server while parked."""


PARKING = ("parked", "resumed", "stopped")
"""Events of an attempt that is parked."""


def problems_with_ages(batch: Trained) -> Iterator[str]:
    """A sentence for each way in which a Batch is older than promised, or than it reports."""
    name = batch.batch_id
    sampled = [member.versions for group in batch.groups for member in group.members]
    oldest = [min(versions) for versions in sampled]
    if batch.said_version < batch.version:
        yield f"batch {name} updates version {batch.version}, not {batch.said_version}"
    ages = Counter(max(0, batch.said_version - version) for version in oldest)
    if batch.said_ages != ages:
        yield f"batch {name} has members of ages {dict(ages)} and says {batch.said_ages}"
    if not oldest:
        return
    bounds = (batch.said_version, batch.version)
    if max(ages) > work.MAX_STALENESS or max(bounds) - min(oldest) > work.MAX_STALENESS:
        yield f"batch {name}, which updates {bounds}, has a token of version {min(oldest)}"
    if any(versions != sorted(versions) for versions in sampled):
        yield f"batch {name} has a trajectory whose weight versions fall"


def follow_parked(histories: dict[str, list[Event]]) -> tuple[Parked, list[str]]:
    """The ends of parking by the agent servers' histories, and a sentence for each attempt that was
    parked for ever."""
    totals, problems = Counter[str](), list[str]()
    for server_id, events in histories.items():
        still = set[tuple[str, int]]()
        for event in events:
            if event["event"] == "started":
                totals["lost"] += len(still)
                still.clear()
            if event["event"] not in PARKING:
                continue
            totals[event["event"]] += 1
            attempt = (event["job"], event["attempt"])
            (still.add if event["event"] == "parked" else still.remove)(attempt)
        for job, number in sorted(still):
            problems.append(f"attempt {number} of {job} stands still on {server_id} for ever")
    return Parked(**totals), problems
