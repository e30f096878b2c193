"""A fleet planned again as its nodes leave, join and come back."""

import itertools
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.fleet import FleetPlan, FleetSettings
from launch.replanning import changes, replanned
from orchestrator.placement import FleetNode, place

GPUS = st.lists(st.integers(1, 3), min_size=1, max_size=4)
HELPERS = st.integers(0, 5)


def fleet_of(gpus: list[int], helpers: int, width: int = 1) -> FleetPlan:
    nodes = [
        *(FleetNode(name=f"gpu{i}", gpus=each * width) for i, each in enumerate(gpus)),
        *(FleetNode(name=f"cpu{i}") for i in range(helpers)),
    ]
    return FleetPlan(
        settings=FleetSettings(
            model=Path("m"), directory=Path("d"), queues=Path("q"), tensor_parallel=width
        ),
        placement=place(nodes, tensor_parallel=width),
        addresses={node.name: f"10.0.0.{i}" for i, node in enumerate(nodes, 1)},
    )


def asked_by(fleet: FleetPlan) -> dict[str, tuple[str, ...]]:
    """What the helpers ask that are there."""
    hosts = {server.node for server in fleet.placement.llm_servers}
    return {
        each.node: each.llm_servers
        for each in fleet.placement.agent_servers
        if each.node not in hosts and each.node not in fleet.absent
    }


def left(fleet: FleetPlan) -> list[str]:
    """The LLM servers that are there."""
    return [each.name for each in fleet.placement.llm_servers if each.node not in fleet.absent]


def pairs(fleet: FleetPlan) -> set[tuple[str, str]]:
    return {(node, name) for node, asked in asked_by(fleet).items() for name in asked}


def spread(numbers: Collection[int]) -> int:
    return max(numbers) - min(numbers)


def presences(fleet: FleetPlan, data: st.DataObject, most: int = 4) -> list[set[str]]:
    """Who is there, at one time after the other."""
    nodes = st.sets(st.sampled_from(fleet.nodes))
    return data.draw(st.lists(nodes, min_size=1, max_size=most))


@given(gpus=GPUS, helpers=HELPERS, width=st.sampled_from((1, 2)), data=st.data())
def test_whoever_is_there_shares_all_llm_servers_that_are_there_evenly(
    gpus: list[int], helpers: int, width: int, data: st.DataObject
) -> None:
    fleet = fleet_of(gpus, helpers, width)
    for present in presences(fleet, data):
        fleet = replanned(fleet, present)
        asked, servers = asked_by(fleet), left(fleet)
        assert set(fleet.absent) == set(fleet.nodes) - present
        if not asked or not servers:
            continue
        assert {name for names in asked.values() for name in names} <= set(servers)
        asking = Counter(dict.fromkeys(servers, 0))
        asking.update(name for names in asked.values() for name in names)
        assert spread(asking.values()) <= 1
        assert spread([len(names) for names in asked.values()]) <= 1
        assert min(len(names) for names in asked.values()) >= 1


@given(gpus=GPUS, helpers=HELPERS, data=st.data())
def test_nodes_run_what_they_ran_and_ask_their_own_llm_servers(
    gpus: list[int], helpers: int, data: st.DataObject
) -> None:
    first = fleet = fleet_of(gpus, helpers)
    for present in presences(fleet, data):
        fleet = replanned(fleet, present)
    assert fleet.placement.llm_servers == first.placement.llm_servers
    assert fleet.nodes == first.nodes
    hosts = {server.node for server in first.placement.llm_servers}
    for each, before in zip(
        fleet.placement.agent_servers, first.placement.agent_servers, strict=True
    ):
        if each.node in hosts:
            assert each == before


@given(gpus=GPUS, helpers=HELPERS, data=st.data())
def test_planned_again_with_the_same_nodes_nothing_moves(
    gpus: list[int], helpers: int, data: st.DataObject
) -> None:
    fleet = fleet_of(gpus, helpers)
    assert changes(fleet, replanned(fleet, fleet.nodes)) == {}
    for present in presences(fleet, data):
        fleet = replanned(fleet, present)
        assert changes(fleet, replanned(fleet, present)) == {}
        assert pairs(replanned(fleet, present)) == pairs(fleet)


@settings(deadline=None)  # all sharings are tried
@given(
    gpus=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    helpers=st.integers(1, 3),
    data=st.data(),
)
def test_no_even_sharing_would_have_moved_less(
    gpus: list[int], helpers: int, data: st.DataObject
) -> None:
    """Hosts and helpers leave and come back; each even sharing of so few is tried."""
    fleet = fleet_of(gpus, helpers)
    for present in presences(fleet, data, most=3):
        before, fleet = fleet, replanned(fleet, present)
        agents, servers = list(asked_by(fleet)), left(fleet)
        if not agents or not servers:
            continue
        kept = len(pairs(before) & pairs(fleet))
        assert kept == max(
            len(pairs(before) & set(sharing)) for sharing in even_sharings(agents, servers)
        )


def even_sharings(agents: list[str], servers: list[str]) -> list[tuple[tuple[str, str], ...]]:
    """Each helper asks some, each LLM server is asked by some, as evenly as can be."""
    found = []
    most = max(len(agents), len(servers))
    for sharing in itertools.combinations(itertools.product(agents, servers), most):
        by_agent = Counter(dict.fromkeys(agents, 0))
        by_server = Counter(dict.fromkeys(servers, 0))
        by_agent.update(agent for agent, _ in sharing)
        by_server.update(server for _, server in sharing)
        if all(min(n.values()) and spread(n.values()) <= 1 for n in (by_agent, by_server)):
            found.append(sharing)
    return found


@given(gpus=GPUS, helpers=HELPERS, data=st.data())
def test_who_is_told_knows_the_new_plan(gpus: list[int], helpers: int, data: st.DataObject) -> None:
    """An agent server that is told each change, or begins with the plan of its start, asks in the
    end what is planned."""
    fleet = fleet_of(gpus, helpers)
    asks = {node: fleet.proxies_of(node) for node in fleet.nodes}
    for present in presences(fleet, data):
        before, fleet = fleet, replanned(fleet, present)
        for node, proxies in changes(before, fleet).items():
            assert node in present
            asks[node] = proxies
        assert all(asks[node] == fleet.proxies_of(node) for node in present)


def test_a_helper_that_comes_back_begins_with_what_is_there() -> None:
    fleet = fleet_of([1, 1], helpers=2)
    fleet = replanned(fleet, {"gpu0", "cpu0"})
    assert fleet.proxies_of("cpu1") == {"http://10.0.0.1:8010": 1}


def test_without_any_llm_server_all_wait_for_those_that_they_had() -> None:
    fleet = fleet_of([1, 1], helpers=2)
    nobody = replanned(fleet, {"cpu0", "cpu1"})
    assert nobody == msgspec.structs.replace(fleet, absent=("gpu0", "gpu1"))
    assert set(changes(nobody, replanned(nobody, {"gpu0", "cpu0", "cpu1"}))) == {"gpu0", "cpu1"}


def test_of_several_models_each_is_shared_by_its_own() -> None:
    nodes = [
        FleetNode(name=f"{model}-{kind}", gpus=gpus, model=model)
        for model in ("policy", "judge")
        for kind, gpus in (("gpu", 1), ("cpu", 0))
    ]
    fleet = msgspec.structs.replace(
        fleet_of([1], 0),
        placement=place(nodes),
        addresses={node.name: f"10.0.0.{i}" for i, node in enumerate(nodes, 1)},
    )
    without = replanned(fleet, set(fleet.nodes) - {"judge-gpu"})
    assert asked_by(without) == {
        "policy-cpu": ("policy-gpu/llm-0",),
        "judge-cpu": ("judge-gpu/llm-0",),
    }


def test_where_all_compute_on_cpus_each_goes_on_with_its_own() -> None:
    fleet = fleet_of([1], 0)
    nodes = [FleetNode(name=f"n{i}") for i in range(3)]
    fleet = msgspec.structs.replace(
        fleet, placement=place(nodes), addresses={f"n{i}": f"10.0.0.{i}" for i in range(3)}
    )
    assert replanned(fleet, {"n0", "n2"}).placement == fleet.placement
