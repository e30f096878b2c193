"""Comparison of what a program gave with what was expected, outside of the program's sandbox.

Both sides are plain text or JSON values of this process, so that nothing that the program defines
(`__eq__`, patched modules) takes part.
"""

import math
import re
from typing import Any

TOLERANCE = 1e-6
"""Relative and absolute, for an expected number with a decimal point."""

_DECIMAL = re.compile(r"[+-]?\d{1,40}\.\d{0,40}(?:[eE][+-]?\d{1,3})?")
_NUMBER = re.compile(r"[+-]?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?")


def same_output(expected: str, printed: str) -> bool:
    """Whether the lines agree, blanks at their ends and blank lines around aside."""
    wanted, given = _lines(expected), _lines(printed)
    return wanted == given or (len(wanted) == len(given) and all(map(_same_line, wanted, given)))


def same_value(expected: Any, returned: Any) -> bool:
    """Whether two JSON values agree: booleans are no numbers, and 2 equals 2.0."""
    match expected, returned:
        case (bool(), _) | (_, bool()):
            return expected is returned
        case (float(), int() | float()):
            return _close(expected, returned)
        case (list(), list()):
            return len(expected) == len(returned) and all(map(same_value, expected, returned))
        case (dict(), dict()):
            return expected.keys() == returned.keys() and all(
                same_value(value, returned[name]) for name, value in expected.items()
            )
    return bool(expected == returned)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _same_line(expected: str, printed: str) -> bool:
    wanted, given = expected.split(), printed.split()
    return len(wanted) == len(given) and all(map(_same_word, wanted, given))


def _same_word(expected: str, printed: str) -> bool:
    if expected == printed:
        return True
    if not _DECIMAL.fullmatch(expected) or not _NUMBER.fullmatch(printed):
        return False
    return _close(float(expected), float(printed))


def _close(expected: float, returned: float) -> bool:
    try:
        return math.isclose(expected, returned, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # an integer too large for a float
        return False
