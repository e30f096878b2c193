"""The garbage of a process that serves for days.

References are counted, so nearly everything is freed where it ends; the collector looks for cycles
alone. By default it begins after 700 objects, the decoded answer of one request, and at last goes
through all that was ever imported.
"""

import gc

_YOUNG_OBJECTS = 10_000
"""Objects made and not freed since the last look at them."""


def collect_seldom() -> None:
    """Leave out what is there now, which stays, and look for cycles less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
