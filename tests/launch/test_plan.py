"""The plan is pure: what runs where, without starting it."""

from pathlib import Path

import pytest

from launch.plan import LLMKind, YardSettings, local_plan
from launch.ports import default_ports
from rollyard.errors import LaunchError


def settings(agent_servers: int = 2, llm_servers: int = 1, **changes: object) -> YardSettings:
    values = {
        "model": Path("/models/tiny"),
        "directory": Path("/var/yard"),
        "ports": default_ports(8005, agent_servers, llm_servers),
    }
    return YardSettings(**(values | changes))  # type: ignore[arg-type]


def test_redis_starts_first_and_agent_servers_last() -> None:
    names = [spec.name for spec in local_plan(settings())]
    assert names == ["redis", "orchestrator", "llm-0", "llm-node", "agent-0", "agent-1"]


def test_every_agent_server_knows_every_llm_server_of_its_node() -> None:
    plan = {spec.name: spec for spec in local_plan(settings(llm_servers=2))}
    urls = [plan["llm-0"].url, plan["llm-1"].url]
    for name in ("agent-0", "agent-1"):
        assert [word for word in plan[name].command if word in urls] == urls


def test_no_two_processes_share_a_port() -> None:
    plan = local_plan(settings(agent_servers=3, llm_servers=2))
    ports = [spec.port for spec in plan]
    assert len(set(ports)) == len(ports) == 8


def test_the_orchestrator_takes_the_port_asked_for_and_agents_the_next() -> None:
    plan = {spec.name: spec.port for spec in local_plan(settings())}
    assert (plan["orchestrator"], plan["agent-0"], plan["agent-1"]) == (8005, 8006, 8007)


def test_every_wait_for_a_process_has_a_deadline() -> None:
    assert all(0 < spec.ready_seconds < 600 for spec in local_plan(settings()))


def test_the_stand_in_takes_the_place_of_vllm() -> None:
    plan = {spec.name: spec for spec in local_plan(settings(llm=LLMKind.SCRIPTED))}
    assert "llm_servers.scripted" in plan["llm-0"].command
    assert "--python" not in plan["llm-0"].command


@pytest.mark.parametrize("llm", LLMKind)
def test_no_two_llm_servers_draw_alike(llm: LLMKind) -> None:
    plan = {spec.name: spec.command for spec in local_plan(settings(llm_servers=2, llm=llm))}
    seeds = [plan[name][plan[name].index("--seed") + 1] for name in ("llm-0", "llm-1")]
    assert seeds == ["0", "1"]


def test_a_server_without_slots_is_refused() -> None:
    with pytest.raises(LaunchError, match="at least 1 slot"):
        settings(slots=0)


def test_ports_beyond_the_last_are_refused() -> None:
    with pytest.raises(LaunchError, match="65533 to 65538 do not exist"):
        default_ports(65533, 2, 1)
