"""What people ask of the queues and order: the operator's part of the contract, and its limits.

- A Job dies when `max_infra_failures` attempts failed, or when it was lost with
  `MOST_SERVERS_LOST` different servers. Losing one server again counts as a failed attempt.
- A dead Job keeps its Prompt, reason and history until it is requeued.
- A server on which `after_failures` different Jobs fail in a row is quarantined, unless half of the
  servers are: none of its Slots is offered, then one (probation), and after a success all.
- A draining server gets nothing more; its next heartbeat without work is told to leave.
"""

from typing import Protocol

import msgspec

from rollyard.messages import DeadJob, JobRecord, JobState, ServerCondition, Storage

MOST_SERVERS_LOST = 3
MOST_ATTEMPTS_KEPT = 8
"""Of the history of one Job."""
MOST_DEAD_KEPT = 1000
"""Of one Run: what died first tells most."""
MOST_GONE_KNOWN = 10_000
"""Groups of one Run that are gone and whose Prompt, fed once more, is still known."""
MOST_REASON_CHARACTERS = 1000


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a server is kept from work, and for how long; each time in a row twice as long."""

    after_failures: int = 5
    first_seconds: float = 30.0
    longest_seconds: float = 600.0


DEFAULT_QUARANTINE = QuarantineSettings()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Who keeps the Slots that are occupied."""

    leased: int
    """Jobs of all Runs, parked or not."""
    parked: dict[str, int]
    """Run -> its parked Jobs, where it has any."""


class Operations(Protocol):
    def job(self, job_id: str) -> JobRecord:
        """Raises `NotFound`, also for a Job whose Group was dropped."""

    def jobs(self, run_id: str, state: JobState, limit: int) -> list[JobRecord]:
        """At most `limit` Jobs of the Run; queued ones as they wait. Raises `NotFound`.

        One that is parked is not among those that are leased.
        """

    def dead(self, run_id: str) -> list[DeadJob]:
        """Those that died first, in the order of their ids."""

    def requeue(self, job_id: str) -> str:
        """Feed a dead Job's Prompt as a new Group with a fresh budget; returns the Group's id.

        The dead Jobs of the old Group are then counted as dropped. Raises `NotFound`.
        """

    def drain(self, server_id: str) -> None:
        """Lease nothing more to the server. Raises `NotFound`."""

    def storage(self) -> Storage:
        """What keeps the queues, and how durably."""

    def standing(self) -> Standing: ...

    def stray_leases(self) -> tuple[str, ...]:
        """Leased Jobs whose agent server is not registered: there should be none."""

    def conditions(self) -> dict[str, ServerCondition]:
        """Of every registered server."""


def reborn(group_id: str) -> str:
    """The id of the Group that takes the place of a dead one: `p`, `p:2`, `p:3`."""
    name, _, number = group_id.rpartition(":")
    if name and number.isdigit():
        return f"{name}:{int(number) + 1}"
    return f"{group_id}:2"
