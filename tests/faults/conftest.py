"""Yards of real processes for the tests of the fault catalogue, in docs/reliability.md."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.settings import ChaosSettings
from tests.faults.yard import FaultYard

MakeYard = Callable[..., FaultYard]
"""Takes the fields of `ChaosSettings`; nothing is started yet."""


@pytest.fixture
def make_yard(tmp_path: Path) -> Iterator[MakeYard]:
    """Makes yards, and kills whatever is left of them at the end of the test."""
    yards: list[FaultYard] = []

    def make(**changes: Any) -> FaultYard:
        usual = {"seed": 0, "jobs": 0, "orchestrators": 1, "agent_servers": 3}
        quiet = {"lost_reply_share": 0.0, "trainer_crash_share": 0.0}
        directory = tmp_path / f"yard-{len(yards)}"
        yards.append(FaultYard(ChaosSettings(directory=directory, **(usual | quiet | changes))))
        return yards[-1]

    yield make
    for yard in yards:
        yard.close()
