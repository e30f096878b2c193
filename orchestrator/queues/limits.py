"""Limits on failures before a Job or a server is blamed, on the records that are kept, and on what
waits for one server while another lacks work."""

import msgspec

MAX_SERVERS_LOST = 3
MAX_UNREACHED = 3
"""Deliveries in a row that may fail to reach a server before it is quarantined."""
MAX_EXCUSED = 3
"""Losses of a Job that common silence excuses: a Group that brings down all servers must end."""
MAX_ATTEMPTS_KEPT = 8
"""Attempts that the history of a Job keeps, the latest ones."""
MAX_DEAD_KEPT = 1000
"""Dead Jobs that a Run keeps, the first ones: they tell most."""
MAX_GONE_KNOWN = 10_000
"""Dropped Groups that a Run remembers, the latest ones, in case their Prompts are fed again."""
RETENTION_SECONDS = 7 * 86400.0
"""Time for which records are kept that nothing needs any more, unless the operator sets another."""
MAX_REASON_CHARACTERS = 1000
MAX_QUEUED_PER_SLOT = 8
"""Jobs that may wait for each Slot of the deployment while some class of servers lacks work. Rows
of 8 kinds in random order leave up to 3 % of the simulator's Slots idle with 8, and 16 % with 2."""


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions and the length of a quarantine, which doubles each time in a row."""

    after_failures: int = 5
    first_seconds: float = 30.0
    max_seconds: float = 600.0


DEFAULT_QUARANTINE = QuarantineSettings()
