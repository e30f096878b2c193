"""How often something may fail before somebody is blamed, and how much is kept of it."""

import msgspec

MAX_SERVERS_LOST = 3
MAX_UNREACHED = 3
"""Deliveries in a row that may fail to reach a server before it is quarantined."""
MAX_EXCUSED = 3
"""A Group whose members bring down all servers at once must end, too."""
MAX_ATTEMPTS_KEPT = 8
"""The history of a Job keeps so many, the last ones."""
MAX_DEAD_KEPT = 1000
"""A Run keeps so many dead Jobs, the first ones: they tell most."""
MAX_GONE_KNOWN = 10_000
"""A Run knows so many Groups that are gone, the last ones, when their Prompts are fed again."""
MAX_REASON_CHARACTERS = 1000


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions and the length of a quarantine, which doubles each time in a row."""

    after_failures: int = 5
    first_seconds: float = 30.0
    max_seconds: float = 600.0


DEFAULT_QUARANTINE = QuarantineSettings()
