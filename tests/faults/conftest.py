"""Deployments of real processes for the tests of the fault catalogue, in docs/reliability.md."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.settings import ChaosSettings
from tests.faults.fault_deployment import FaultDeployment

MakeDeployment = Callable[..., FaultDeployment]
"""Takes the fields of `ChaosSettings`, and `durable`; nothing is started yet."""


@pytest.fixture
def make_deployment(tmp_path: Path) -> Iterator[MakeDeployment]:
    """Makes deployments, and kills whatever is left of them at the end of the test."""
    deployments: list[FaultDeployment] = []

    def make(*, durable: bool = False, **changes: Any) -> FaultDeployment:
        usual = {"seed": 0, "jobs": 0, "orchestrators": 1, "agent_servers": 3}
        quiet = {"lost_reply_share": 0.0, "trainer_crash_share": 0.0}
        directory = tmp_path / f"deployment-{len(deployments)}"
        settings = ChaosSettings(directory=directory, **(usual | quiet | changes))
        deployments.append(FaultDeployment(settings, durable=durable))
        return deployments[-1]

    yield make
    for deployment in deployments:
        deployment.close()
