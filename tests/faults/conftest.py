"""Deployments of real processes for the tests of the fault catalogue, in docs/reliability.md."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.settings import ChaosSettings
from tests.faults.fault_deployment import FaultDeployment

MakeDeployment = Callable[..., FaultDeployment]
"""Takes the fields of `ChaosSettings`, and `durable`; nothing is started yet."""

SHOWN_LINES = 12


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show how the logs of the test's deployments end, if it fails."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        for log in sorted(directory.glob("**/logs/*.log")):
            lines = log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
            report.sections.append((f"end of {log.name}", "\n".join(lines)))
    return report


@pytest.fixture
def make_deployment(tmp_path: Path) -> Iterator[MakeDeployment]:
    """Makes deployments, kills whatever is left of them at the end of the test, and fails it if a
    service lost its worker without being hurt."""
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
    assert not [lost for each in deployments for lost in each.workers_lost()]
