"""What each node of a fleet runs, and where it listens."""

from collections import Counter
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest

from launch.deployment_tls import made_tls
from launch.engine import Engine, LLMKind
from launch.fleet import FleetPlan, FleetSettings, read_fleet, write_fleet
from launch.node_command import as_planned_now
from launch.node_processes import processes_of
from launch.process_spec import ProcessSpec
from launch.replanning import replanned
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
        **given,  # type: ignore[arg-type]
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
    servers = ["llm-0", "llm-1", "llm-proxy", "llm-node", "agent"]
    assert list(named(fleet, "g1")) == ["redis", "orchestrator", *servers]
    assert list(named(fleet, "g2")) == servers
    assert list(named(fleet, "c1")) == list(named(fleet, "c2")) == ["agent"]


def test_agents_ask_the_proxies_of_the_nodes_whose_llm_servers_they_share(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    nodes = (*NODES[:2], FleetNode(name="g3", gpus=8), *NODES[2:])
    fleet = fleet_of(tmp_path, nodes=nodes)
    urls = {named(fleet, node)["llm-proxy"].url: node for node in ("g1", "g2", "g3")}
    asked = {
        node: {urls[url]: servers for url, servers in fleet.proxies_of(node).items()}
        for node in fleet.nodes
    }
    assert {node: asked[node] for node in ("g1", "g2", "g3")} == {
        "g1": {"g1": 2},
        "g2": {"g2": 2},
        "g3": {"g3": 4},
    }
    assert Counter(asked["c1"]) + Counter(asked["c2"]) == {"g1": 2, "g2": 2, "g3": 4}
    told = [f"{url},{servers}" for url, servers in fleet.proxies_of("c1").items()]
    assert after("--llm-proxy", named(fleet, "c1")["agent"]) == told
    assert not [
        w for node in fleet.nodes for w in after("--llm-server", named(fleet, node)["agent"])
    ]


def test_llm_servers_get_the_gpus_that_were_planned_and_seeds_of_their_own(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    servers = [named(fleet, node)[name] for node in ("g1", "g2") for name in ("llm-0", "llm-1")]
    assert [after("--gpus", server) for server in servers] == [["0,1"], ["2,3"]] * 2
    assert [after("--seed", server) for server in servers] == [["0"], ["1"], ["2"], ["3"]]
    assert {after("--dtype", server)[0] for server in servers} == {"auto"}


def test_a_node_that_is_lent_gpus_uses_these(tmp_path: Path) -> None:
    """As Slurm lends some of a machine's, under the numbers that they have there."""
    fleet = fleet_of(tmp_path)
    lent = {spec.name: spec for spec in processes_of(fleet, "g1", ("4", "5", "6", "7"))}
    assert [after("--gpus", lent[name]) for name in ("llm-0", "llm-1")] == [["4,5"], ["6,7"]]
    with pytest.raises(LaunchError, match="GPUs 2 3, and CUDA_VISIBLE_DEVICES lends 3"):
        processes_of(fleet, "g1", ("4", "5", "6"))


def test_llm_servers_of_a_rehearsal_compute_on_cpus(tmp_path: Path) -> None:
    server = named(fleet_of(tmp_path, llm_on_cpus=True), "g1")["llm-0"]
    assert after("--gpus", server) == []
    assert after("--dtype", server) == ["float32"]


def test_a_port_is_one_process_on_each_address(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    for node in fleet.nodes:
        bound = [(spec.host, spec.port) for spec in processes_of(fleet, node)]
        assert len(set(bound)) == len(bound)


@pytest.mark.parametrize("network", ["10.0.0", "127.0.0"])
def test_only_what_asks_for_tokens_is_on_the_network(network: str, tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, network=network)
    for spec in processes_of(fleet, "g1"):
        takes_tokens = "--token-file" in spec.command
        assert takes_tokens or ip_address(spec.host).is_loopback, spec.name
    proxy = named(fleet, "g1")["llm-proxy"]
    assert proxy.host == f"{network}.1"
    servers = [named(fleet, "g1")[name].url for name in ("llm-0", "llm-1")]
    assert after("--server", proxy) == after("--server", named(fleet, "g1")["llm-node"]) == servers


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


def test_a_process_that_starts_again_begins_with_the_plan_that_was_written_last(
    tmp_path: Path,
) -> None:
    fleet = fleet_of(tmp_path)
    (agent,) = [spec for spec in processes_of(fleet, "c2") if spec.name == "agent"]
    assert as_planned_now(tmp_path, "c2", agent) == agent  # nobody has written one
    write_fleet(replanned(fleet, set(fleet.nodes) - {"g2"}))
    now = as_planned_now(tmp_path, "c2", agent)
    assert after("--llm-proxy", agent) == ["http://10.0.0.1:8010,1", "http://10.0.0.2:8010,1"]
    assert after("--llm-proxy", now) == ["http://10.0.0.1:8010,1"]


def test_with_tls_all_services_show_the_certificate_and_are_called_by_https(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, tls=made_tls(tmp_path))
    for node in fleet.nodes:
        for name, spec in named(fleet, node).items():
            ours = name in ("orchestrator", "llm-proxy", "llm-node", "agent")
            assert spec.url.startswith("https://") is ours
            assert after("--tls-cert", spec) == ([str(tmp_path / "tls/server.pem")] if ours else [])
            called = [
                url
                for option in ("--orchestrator", "--llm-proxy", "--proxy")
                for url in after(option, spec)
            ]
            assert all(url.startswith("https://") for url in called)
        assert fleet.agent_url(node).startswith("https://")
    told = fleet.environment()
    assert told["ROLLYARD_CA_FILE"] == str(tmp_path / "tls/ca.pem")
    assert told["ROLLYARD_URL"].startswith("https://")
    assert [url.partition(":")[0] for url in told["PRORL_SERVER_URLS"].split("+")] == ["https"] * 4
    write_fleet(fleet)
    assert read_fleet(tmp_path) == fleet


def test_without_tls_no_ca_is_told(tmp_path: Path) -> None:
    assert "ROLLYARD_CA_FILE" not in fleet_of(tmp_path).environment()


def test_a_head_without_a_place_has_redis_and_the_orchestrator_alone(tmp_path: Path) -> None:
    fleet = with_names(tmp_path)
    assert list(named(fleet, "head")) == ["redis", "orchestrator"]
    assert "head" not in fleet.nodes
    assert list(named(fleet, "c1")) == ["agent"]


def test_what_has_a_name_is_called_by_it_and_is_not_allowed_in_advance(tmp_path: Path) -> None:
    """Tomorrow the name may be another machine's."""
    fleet = with_names(tmp_path)
    agent, proxy = named(fleet, "c1")["agent"], named(fleet, "g1")["llm-proxy"]
    assert after("--orchestrator", agent) == ["http://head.example:8005"]
    assert (proxy.host, named(fleet, "g1")["llm-0"].host) == ("g1.example", "127.0.0.1")
    words = named(fleet, "head")["orchestrator"].command
    assert not [word for word in words if word.startswith("--allow-address")]
    by_address = named(fleet_of(tmp_path), "g1")["orchestrator"].command
    assert "--allow-address=10.0.0.4" in by_address


def with_names(directory: Path) -> FleetPlan:
    """A fleet whose nodes have names for addresses, and whose head is no node."""
    fleet = fleet_of(directory)
    names = {node: f"{node}.example" for node in ("head", *fleet.nodes)}
    return msgspec.structs.replace(fleet, addresses=names)
