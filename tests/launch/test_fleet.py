"""What each node of a fleet runs, and where it listens."""

from pathlib import Path

import pytest

from launch.engine import Engine, LLMKind
from launch.fleet import FleetPlan, FleetSettings, check_llm_servers, read_fleet, write_fleet
from launch.node_processes import processes_of
from launch.plan import ProcessSpec
from orchestrator.placement import FleetNode, place
from rollyard.errors import LaunchError

NODES = (
    FleetNode(name="g1", gpus=4),
    FleetNode(name="g2", gpus=4),
    FleetNode(name="c1"),
    FleetNode(name="c2"),
)


def fleet_of(
    directory: Path,
    *,
    network: str = "10.0.0",
    nodes: tuple[FleetNode, ...] = NODES,
    **given: object,
) -> FleetPlan:
    settings = FleetSettings(
        model=Path("/models/policy"),
        directory=directory,
        queues=directory / "redis",
        tensor_parallel=2,
        **{"insecure_llm": True, **given},  # type: ignore[arg-type]
    )
    addresses = {node.name: f"{network}.{number}" for number, node in enumerate(nodes, 1)}
    return FleetPlan(
        settings=settings, placement=place(nodes, tensor_parallel=2), addresses=addresses
    )


def named(fleet: FleetPlan, node: str) -> dict[str, ProcessSpec]:
    return {spec.name: spec for spec in processes_of(fleet, node)}


def after(option: str, spec: ProcessSpec) -> list[str]:
    """The values that the process's command has for the option."""
    words = spec.command
    return [words[i + 1] for i, word in enumerate(words) if word == option]


def test_each_node_runs_its_part_of_the_placement(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    servers = ["llm-0", "llm-1", "llm-node", "agent"]
    assert list(named(fleet, "g1")) == ["redis", "orchestrator", *servers]
    assert list(named(fleet, "g2")) == servers
    assert list(named(fleet, "c1")) == list(named(fleet, "c2")) == ["agent"]


def test_agents_without_gpus_ask_llm_servers_of_other_nodes(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    own = after("--llm-server", named(fleet, "g2")["agent"])
    assert own == ["http://10.0.0.2:8010", "http://10.0.0.2:8011"]
    agents = [named(fleet, node)["agent"] for node in ("c1", "c2")]
    assert sorted(url for agent in agents for url in after("--llm-server", agent)) == [
        f"http://10.0.0.{node}:{port}" for node in (1, 2) for port in (8010, 8011)
    ]


def test_llm_servers_get_the_gpus_that_were_planned_and_seeds_of_their_own(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    servers = [named(fleet, node)[name] for node in ("g1", "g2") for name in ("llm-0", "llm-1")]
    assert [after("--gpus", server) for server in servers] == [["0,1"], ["2,3"]] * 2
    assert [after("--seed", server) for server in servers] == [["0"], ["1"], ["2"], ["3"]]
    assert {after("--dtype", server)[0] for server in servers} == {"auto"}


def test_llm_servers_of_a_rehearsal_compute_on_cpus(tmp_path: Path) -> None:
    server = named(fleet_of(tmp_path, llm_on_cpus=True), "g1")["llm-0"]
    assert after("--gpus", server) == []
    assert after("--dtype", server) == ["float32"]


def test_a_port_is_one_process_on_each_address(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    for node in fleet.nodes:
        bound = [(spec.host, spec.port) for spec in processes_of(fleet, node)]
        assert len(set(bound)) == len(bound)


def test_llm_servers_open_to_everyone_are_on_no_network_unasked(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, insecure_llm=False)
    assert named(fleet, "g1")["llm-0"].host == "127.0.0.1"
    with pytest.raises(LaunchError, match="listens on the loopback of its node"):
        check_llm_servers(fleet)
    check_llm_servers(fleet_of(tmp_path, insecure_llm=False, nodes=NODES[:2]))
    check_llm_servers(fleet_of(tmp_path, insecure_llm=False, network="127.0.0"))


def test_a_trainer_is_told_all_doors_and_the_orchestrator(tmp_path: Path) -> None:
    told = fleet_of(tmp_path).environment()
    assert told["ROLLYARD_URL"] == "http://10.0.0.1:8005"
    assert told["PRORL_SERVER_URLS"] == "+".join(f"http://10.0.0.{n}:8006" for n in (1, 2, 3, 4))


def test_all_nodes_read_the_fleet_that_was_written(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, engine=Engine(kind=LLMKind.SCRIPTED), stop_tokens=("<stop>",))
    write_fleet(fleet)
    assert read_fleet(tmp_path) == fleet
    with pytest.raises(LaunchError, match=r"cannot read .*fleet\.json"):
        read_fleet(tmp_path / "elsewhere")
