"""How often something may fail before somebody is blamed, and how much is kept of it."""

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
