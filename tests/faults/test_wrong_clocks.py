"""Fault 16 of the fault catalogue in docs/reliability.md: clocks are wrong, and jump, by an hour.

Leases are in the time of Redis alone: what the orchestrator and the agent servers take the time to
be changes no Lease.
"""

import time

import msgspec
import pytest

from chaos import skew
from rollyard import Client
from tests.faults import wire
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment, assert_once_each
from tests.faults.scale import scaled, timeout_seconds
from tests.waiting import until

HOUR = 3600.0
JUMPS = [(HOUR, -HOUR), (-HOUR, HOUR), (-HOUR, -HOUR), (HOUR, HOUR), (0.0, 0.0)]
"""The orchestrator's clock and the agent servers'."""
BETWEEN_SECONDS = 1.0


class Clocks:
    def __init__(self, deployment: FaultDeployment) -> None:
        self.orchestrator = deployment.settings.directory / "orchestrator-clock"
        self.agents = deployment.settings.directory / "agent-clock"
        deployment.cluster.orchestrator_clock = self.orchestrator

    def jump(self, orchestrator: float, agents: float) -> None:
        skew.tell(self.orchestrator, orchestrator)
        skew.tell(self.agents, agents)


def start(deployment: FaultDeployment, clocks: Clocks) -> None:
    deployment.start_services()
    for index in range(deployment.settings.agent_servers):
        described = deployment.cluster.described(index)
        deployment.cluster.start_agent(
            index, msgspec.structs.replace(described, clock=clocks.agents)
        )
    deployment.wait_for_servers(deployment.settings.agent_servers)


def believed_time(deployment: FaultDeployment) -> float:
    """The orchestrator's, when a Slot was last taken or freed."""
    return Client(deployment.cluster.door_url).occupancy().points[-1].at


@pytest.mark.timeout(timeout_seconds(300))
@pytest.mark.parametrize("first", [HOUR, -HOUR])
def test_no_lease_changes_when_clocks_jump_by_an_hour(
    make_deployment: MakeDeployment, first: float
) -> None:
    deployment = make_deployment(agent_servers=2, lease_seconds=4.0)
    clocks, gate = Clocks(deployment), deployment.settings.directory / "gate"
    clocks.jump(first, -first)
    start(deployment, clocks)
    batch = deployment.rollout([{"number": n, "gate": str(gate)} for n in range(8)], "long")
    deployment.wait_for_running(8)
    until("their start is seen", lambda: Client(deployment.cluster.door_url).occupancy().points)
    assert abs(believed_time(deployment) - time.time() - first) < HOUR / 2
    held = wire.leases(deployment.cluster.door_url, "long")
    for jump in JUMPS * scaled(1, 5):
        clocks.jump(*jump)
        time.sleep(BETWEEN_SECONDS)  # Leases would end meanwhile
        assert wire.leases(deployment.cluster.door_url, "long") == held
    gate.touch()
    groups = batch.result(30)
    assert_once_each(groups, range(8), deployment.counters("long"))
    assert {group.results[0].lease.attempt for group in groups.groups} == {1}
    assert deployment.counters("long").attempts_failed == 0
