"""How many cases are tried, and from which seed: few in every run of the tests, many with
`make fuzz`."""

import os

_MANY = os.environ.get("ROLLYARD_FUZZ_CASES")
SEED = int(os.environ.get("ROLLYARD_FUZZ_SEED", "20261121"))
RUN_SECONDS = 3600 if _MANY else 400
"""Limit on one test."""


def cases(usual: int) -> int:
    """Number of cases for each operation."""
    return int(_MANY or usual)
