"""What people ask of the queues and order: the operator's part of the contract, and its limits.

- A Job dies when `max_infra_failures` attempts failed, or when it was lost with
  `MAX_SERVERS_LOST` different servers. Losing one server again counts as a failed attempt.
- What is lost while most servers are silent is not held against a Job, `MAX_EXCUSED` times at most.
- A dead Job keeps its Prompt, reason and history until it is requeued.
- A server on which `after_failures` different Jobs fail in a row is quarantined, unless half of the
  servers are; so is one that `MAX_UNREACHED` deliveries in a row did not reach, though its
  heartbeats arrive: none of its Slots is offered, then one (probation), and after a success all.
- A draining server gets nothing more; its next heartbeat without work is told to leave.
"""

import msgspec

MAX_SERVERS_LOST = 3
MAX_UNREACHED = 3
"""Deliveries in a row that may fail to reach a server before it is quarantined."""
MAX_EXCUSED = 3
"""A Group whose members bring down all servers at once must end, too."""
MAX_ATTEMPTS_KEPT = 8
"""Of the history of one Job."""
MAX_DEAD_KEPT = 1000
"""Of one Run: what died first tells most."""
MAX_GONE_KNOWN = 10_000
"""Groups of one Run that are gone and whose Prompt, fed once more, is still known."""
MAX_REASON_CHARACTERS = 1000


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a server is kept from work, and for how long; each time in a row twice as long."""

    after_failures: int = 5
    first_seconds: float = 30.0
    max_seconds: float = 600.0


DEFAULT_QUARANTINE = QuarantineSettings()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Who keeps the Slots that are occupied."""

    leased: int
    """Jobs of all Runs, parked or not."""
    parked: dict[str, int]
    """Run -> its parked Jobs, where it has any."""


def reborn(group_id: str) -> str:
    """The id of the Group that takes the place of a dead one: `p`, `p:2`, `p:3`."""
    name, _, number = group_id.rpartition(":")
    if name and number.isdigit():
        return f"{name}:{int(number) + 1}"
    return f"{group_id}:2"
