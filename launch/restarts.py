"""When a part of a deployment that died starts again, and when it is given up: decisions alone.

- A part is *ready*, *starting*, *waiting* for its next start, or *given up*, which is for good.
- Each death in a row doubles the wait, up to a bound; one more than `max_deaths` in a row ends the
  part, and that part only. Deaths are in a row unless the part was ready for long between them.
- A part starts again only while those are ready that it starts after.
- Parts of a kind stand in for one another. Nothing works once all of a kind are given up.
- Times are seconds of one clock, which the caller reads.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec


class PartState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    WAITING = "waiting"
    """Dead, until the time of its next start."""
    GIVEN_UP = "given_up"


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how fast parts start again."""

    first_seconds: float = 0.5
    """Wait after the first death."""
    max_seconds: float = 30.0
    """The longest wait."""
    healthy_seconds: float = 60.0
    """Time for a part to be ready after which its earlier deaths count no longer."""
    max_deaths: int = 8
    """Deaths in a row that a part may have. With the waits between them they take 90 seconds, or as
    long as the part takes to fail."""

    def wait_after(self, deaths: int) -> float:
        """Seconds from the last of so many deaths in a row to the next start."""
        doublings = min(deaths - 1, 64)  # more would exceed what a float holds
        return min(self.first_seconds * 2.0**doublings, self.max_seconds)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a deployment, through all its lives."""

    name: str
    kind: str
    after: tuple[str, ...] = ()
    """Names of the parts that must be ready when it starts."""
    state: PartState = PartState.READY
    since: float = 0.0
    """Time of the last change of `state`."""
    starts_at: float = 0.0
    """Time of the next start, while it waits for that."""
    deaths: int = 0
    """Deaths in a row."""
    restarts: int = 0
    died_at: float = 0.0
    reason: str = ""
    """How it last ended; empty if it never did."""

    def started(self, now: float) -> "Part":
        """The part after a start that is not ready yet."""
        return msgspec.structs.replace(
            self, state=PartState.STARTING, since=now, restarts=self.restarts + 1
        )

    def became_ready(self, now: float) -> "Part":
        return msgspec.structs.replace(self, state=PartState.READY, since=now)

    def died(self, reason: str, now: float, policy: RestartPolicy) -> "Part":
        """The part after a death, or after a start that failed."""
        healthy = self.state is PartState.READY and now - self.since >= policy.healthy_seconds
        deaths = 1 if healthy else self.deaths + 1
        given_up = deaths > policy.max_deaths
        return msgspec.structs.replace(
            self,
            state=PartState.GIVEN_UP if given_up else PartState.WAITING,
            since=now,
            starts_at=now + policy.wait_after(deaths),
            deaths=deaths,
            died_at=now,
            reason=reason,
        )


def due(parts: Sequence[Part], now: float) -> list[Part]:
    """The parts that are to start now."""
    return [part for part in _startable(parts) if part.starts_at <= now]


def next_start(parts: Sequence[Part]) -> float | None:
    """Time of the first start to come; None if none comes unless another part changes."""
    return min((part.starts_at for part in _startable(parts)), default=None)


def _startable(parts: Sequence[Part]) -> list[Part]:
    ready = {part.name for part in parts if part.state is PartState.READY}
    return [part for part in parts if part.state is PartState.WAITING and ready >= {*part.after}]


def fatal(parts: Iterable[Part]) -> Part | None:
    """The part whose end left none of its kind; None as long as the deployment can work."""
    by_kind: dict[str, list[Part]] = {}
    for part in parts:
        by_kind.setdefault(part.kind, []).append(part)
    for of_kind in by_kind.values():
        if all(part.state is PartState.GIVEN_UP for part in of_kind):
            return max(of_kind, key=lambda part: part.died_at)
    return None
