"""Where the servers of a fleet run, and which LLM servers each agent server asks."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.placement import FleetNode, Placement, place
from rollyard.errors import LaunchError

GPUS = st.lists(st.integers(0, 8), min_size=1, max_size=12)
WIDTH = st.sampled_from((1, 2, 4))
MODELS = ("policy", "judge")


def fleet(gpus: Sequence[int], model: str = "policy") -> list[FleetNode]:
    return [FleetNode(name=f"n{i}", gpus=each, model=model) for i, each in enumerate(gpus)]


def placed(gpus: Sequence[int], width: int = 1) -> Placement:
    """The placement; of GPUs for one LLM server at least, where there are any."""
    enough = [*gpus, width] if 0 < max(gpus) < width else gpus
    return place(fleet(enough), tensor_parallel=width)


def asked_by(placement: Placement) -> dict[str, tuple[str, ...]]:
    return {each.node: each.llm_servers for each in placement.agent_servers}


def helpers(placement: Placement) -> dict[str, tuple[str, ...]]:
    """What the agent servers ask that have no LLM server on their node."""
    hosts = {server.node for server in placement.llm_servers}
    return {node: asked for node, asked in asked_by(placement).items() if node not in hosts}


def spread(numbers: Sequence[int]) -> int:
    return max(numbers) - min(numbers)


@given(gpus=GPUS, width=WIDTH)
def test_each_node_has_an_agent_server_and_as_many_llm_servers_as_its_gpus_allow(
    gpus: list[int], width: int
) -> None:
    placement = placed(gpus, width)
    number = Counter(server.node for server in placement.llm_servers)
    nodes = [each.node for each in placement.agent_servers]
    assert nodes == [f"n{i}" for i in range(len(nodes))]
    if max(gpus) == 0:
        assert set(number.values()) == {1}
        assert len(number) == len(gpus)
    else:
        assert [number[f"n{i}"] for i in range(len(gpus))] == [each // width for each in gpus]


@given(gpus=GPUS, width=WIDTH)
def test_no_gpu_is_given_twice_or_does_not_exist(gpus: list[int], width: int) -> None:
    placement = placed(gpus, width)
    given_out = [(server.node, gpu) for server in placement.llm_servers for gpu in server.gpus]
    assert len(set(given_out)) == len(given_out)
    if max(gpus) > 0:
        assert all(len(server.gpus) == width for server in placement.llm_servers)
        number = dict(zip((f"n{i}" for i in range(len(gpus) + 1)), [*gpus, width], strict=False))
        assert all(gpu < number[node] for node, gpu in given_out)


@given(gpus=GPUS, width=WIDTH)
def test_agents_beside_llm_servers_ask_these_alone(gpus: list[int], width: int) -> None:
    placement = placed(gpus, width)
    asked = asked_by(placement)
    for node in {server.node for server in placement.llm_servers}:
        own = [server.name for server in placement.llm_servers if server.node == node]
        assert list(asked[node]) == own


@given(gpus=GPUS, width=WIDTH)
def test_all_other_agents_share_all_llm_servers_evenly(gpus: list[int], width: int) -> None:
    placement = placed(gpus, width)
    asked = helpers(placement)
    if not asked:
        return
    assert min(len(servers) for servers in asked.values()) >= 1
    assert spread([len(servers) for servers in asked.values()]) <= 1
    asking = Counter(server.name for server in placement.llm_servers)
    asking.subtract(server.name for server in placement.llm_servers)
    asking.update(name for servers in asked.values() for name in servers)
    assert set(asking) == {server.name for server in placement.llm_servers}
    assert min(asking.values()) >= 1 or len(asked) < len(asking)
    assert spread(list(asking.values())) <= 1


@given(gpus=GPUS, order=st.randoms(use_true_random=False))
def test_planned_again_nothing_moves(gpus: list[int], order: random.Random) -> None:
    """In whichever order the nodes are named."""
    placement, nodes = placed(gpus), fleet(gpus)
    order.shuffle(nodes)
    again = place(nodes, before=placement)
    assert {node: set(asked) for node, asked in asked_by(again).items()} == {
        node: set(asked) for node, asked in asked_by(placement).items()
    }


@given(
    hosts=st.integers(1, 3),
    before=st.sets(st.integers(0, 7), min_size=1, max_size=5),
    after=st.sets(st.integers(0, 7), min_size=1, max_size=5),
)
def test_no_even_sharing_would_have_kept_more(
    hosts: int, before: set[int], after: set[int]
) -> None:
    """Helpers leave, join and come back; each even sharing of so few is tried."""

    def nodes(which: set[int]) -> list[FleetNode]:
        return [
            *(FleetNode(name=f"gpu{i}", gpus=1) for i in range(hosts)),
            *(FleetNode(name=f"cpu{i}") for i in sorted(which)),
        ]

    old = place(nodes(before))
    pairs = {(node, name) for node, asked in helpers(old).items() for name in asked}
    now = helpers(place(nodes(after), before=old))
    kept = sum((node, name) in pairs for node, asked in now.items() for name in asked)
    assert kept == max(
        sum(pair in pairs for pair in sharing)
        for sharing in _even_sharings(
            [f"cpu{i}" for i in after], [f"gpu{i}/llm-0" for i in range(hosts)]
        )
    )


def _even_sharings(agents: list[str], servers: list[str]) -> list[list[tuple[str, str]]]:
    most = max(len(agents), len(servers))
    found = []
    for sharing in itertools.combinations(itertools.product(agents, servers), most):
        by_agent, by_server = Counter(a for a, _ in sharing), Counter(s for _, s in sharing)
        numbers = [by_agent[each] for each in agents], [by_server[each] for each in servers]
        if all(min(each) >= 1 and spread(each) <= 1 for each in numbers):
            found.append(list(sharing))
    return found


def test_the_figure_of_the_article() -> None:
    """Four nodes of eight GPUs and fifteen of none, two GPUs an LLM server."""
    placement = place(fleet([8] * 4 + [0] * 15), tensor_parallel=2)
    assert len(placement.llm_servers) == 16
    assert [len(each.llm_servers) for each in placement.agent_servers] == [4] * 4 + [2] + [1] * 14


def test_each_model_has_nodes_of_its_own() -> None:
    nodes = [
        FleetNode(name=f"{model}-{kind}{i}", gpus=gpus, model=model)
        for model in MODELS
        for kind, gpus, number in (("gpu", 2, 1), ("cpu", 0, 3))
        for i in range(number)
    ]
    placement = place(nodes)
    model_of = {server.name: server.model for server in placement.llm_servers}
    assert all(
        model_of[name] == each.model
        for each in placement.agent_servers
        for name in each.llm_servers
    )
    assert {each.model for each in placement.agent_servers} == set(MODELS)


def test_gpus_too_few_for_an_llm_server_leave_a_node_of_cpus() -> None:
    placement = place(fleet([4, 1]), tensor_parallel=2)
    assert asked_by(placement)["n1"] == ("n0/llm-0", "n0/llm-1")


@pytest.mark.parametrize(
    ("nodes", "width", "why"),
    [
        ([], 1, "at least one node"),
        ([FleetNode(name="a"), FleetNode(name="a")], 1, "a node is named twice: a"),
        (fleet([4, 2]), 8, "no node has the 8 GPUs of one LLM server; the most are the 4 of n0"),
        (fleet([4]), 0, "at least 1 GPU"),
        ([*fleet([4]), FleetNode(name="b", model="judge")], 1, "give it one of: policy"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(nodes: list[FleetNode], width: int, why: str) -> None:
    with pytest.raises(LaunchError, match=why):
        place(nodes, tensor_parallel=width)
