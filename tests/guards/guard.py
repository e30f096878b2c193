"""What a promise rests on, what removes it, and what must fail then."""

import msgspec


class Guard(msgspec.Struct, frozen=True):
    """Removed by replacing `text`, which must stand in `file` exactly once, with `without`."""

    name: str
    file: str
    text: str
    without: str
    tests: str
