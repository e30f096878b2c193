"""Which LLM server a trajectory talks to."""

import math
import random
import statistics
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.routing import AHEAD, OVERLOAD, RECOVERY_SECONDS, LLMRoutes, choose

SERVERS = ("a", "b", "c")

loads = st.dictionaries(st.text(), st.integers(0, 100), min_size=1, max_size=8)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def home_of(group: str, *servers: str) -> str:
    return choose(group, dict.fromkeys(servers or SERVERS, 0))


def test_a_trajectory_stays_with_its_server() -> None:
    routes = LLMRoutes(["a", "b"])
    first = routes.server_of("t1", "g")
    for number in range(2, 9):
        routes.server_of(f"t{number}", "g")
    assert routes.server_of("t1", "g") == first


def test_the_members_of_a_group_go_to_one_server_where_others_do_as_much() -> None:
    routes = LLMRoutes(SERVERS)
    for number in range(300):
        routes.server_of(f"other {number}", f"other {number}")
    quiet = min(routes.load, key=lambda server: routes.load[server])
    group = next(f"g{number}" for number in range(99) if home_of(f"g{number}") == quiet)
    assert {routes.server_of(f"t{member}", group) for member in range(5)} == {quiet}


@given(st.text(), st.permutations(SERVERS))
def test_agent_servers_agree_without_asking_each_other(group: str, order: list[str]) -> None:
    routes = LLMRoutes(order)
    assert routes.server_of("t", group) == home_of(group)


@given(st.text(), loads)
def test_a_member_goes_where_its_siblings_go_among_the_servers_that_are_not_overloaded(
    group: str, load: dict[str, int]
) -> None:
    share = (sum(load.values()) + 1) / len(load)
    free = [server for server in load if load[server] < OVERLOAD * share]
    assert choose(group, load) == home_of(group, *free)


@given(st.text(), loads)
def test_no_server_is_given_more_than_its_share_allows(group: str, load: dict[str, int]) -> None:
    share = (sum(load.values()) + 1) / len(load)
    assert load[choose(group, load)] + 1 <= math.ceil(OVERLOAD * share)


@given(st.text(), st.sampled_from(SERVERS))
def test_a_server_that_leaves_takes_no_other_groups_home_along(group: str, gone: str) -> None:
    left = home_of(group, *(server for server in SERVERS if server != gone))
    assert left == home_of(group) or home_of(group) == gone


def test_groups_are_spread_over_all_servers() -> None:
    homes = Counter(home_of(f"run/{number}") for number in range(3000))
    assert all(900 < homes[server] < 1100 for server in SERVERS)


def test_siblings_on_many_agent_servers_share_a_few_llm_servers() -> None:
    """Least loaded first would spread the 16 members of a Group over 6 or 7 of 8 servers."""
    chance, servers, slots = random.Random(0), [f"http://10.0.0.{n}:8000" for n in range(8)], 512
    agents = [LLMRoutes(servers) for _ in range(8)]
    running: list[tuple[LLMRoutes, str]] = []
    met: dict[str, set[str]] = defaultdict(set)
    worst = 0.0
    for number in range(4096):
        if len(running) == slots:
            agent, ended = running.pop(chance.randrange(slots))
            agent.release(ended)
        else:
            agent = agents[number % len(agents)]
        group, trajectory = f"run/{number // 16}", f"t{number}"
        met[group].add(str(agent.server_of(trajectory, group)))
        running.append((agent, trajectory))
        if len(running) == slots:
            total = sum((Counter(each.load) for each in agents), Counter())
            worst = max(worst, total.most_common(1)[0][1] / (slots / len(servers)))
    assert statistics.mean(map(len, met.values())) < 3
    assert worst < OVERLOAD + len(agents) * len(servers) / slots


@pytest.mark.parametrize("members", [1, 4, 16])
@pytest.mark.parametrize("servers", [2, 7])
def test_over_a_run_all_servers_are_given_the_same(members: int, servers: int) -> None:
    seed = 10 * members + servers
    chance, routes = random.Random(seed), LLMRoutes([str(n) for n in range(servers)])
    given: Counter[str] = Counter()
    running: list[str] = []
    for number in range(400):
        if len(running) == 16:
            routes.release(running.pop(chance.randrange(16)))
        given[str(routes.server_of(f"t{number}", f"{seed}/{number // members}"))] += 1
        running.append(f"t{number}")
    assert max(given.values()) <= AHEAD * 400 / servers + 2


def test_a_proxy_is_given_as_much_as_the_servers_behind_it() -> None:
    chance, shares = random.Random(5), {"many": 6, "few": 2}
    routes = LLMRoutes([*shares, "one"], shares=shares)
    given: Counter[str] = Counter()
    running: list[str] = []
    for number in range(900):
        if len(running) == 36:
            routes.release(running.pop(chance.randrange(36)))
        given[str(routes.server_of(f"t{number}", f"{number // 4}"))] += 1
        running.append(f"t{number}")
        most = OVERLOAD * len(running) / 9
        assert all(routes.load[each] <= most * shares.get(each, 1) + 1 for each in routes.load)
    for server, number in given.items():
        assert number == pytest.approx(100 * shares.get(server, 1), rel=0.1)


def test_a_server_that_is_added_is_not_behind() -> None:
    routes = LLMRoutes(["a"])
    for number in range(100):
        routes.server_of(f"t{number}", f"g{number}")
        routes.release(f"t{number}")
    routes.add("b")
    groups = [f"h{number}" for number in range(40)]
    assert {routes.server_of(group, group) for group in groups} == {"a", "b"}


def test_a_trajectory_leaves_a_server_that_failed_it() -> None:
    routes = LLMRoutes(["a", "b"])
    failed = str(routes.server_of("t", "g"))
    routes.move("t", "g", failed)
    assert routes.server_of("t", "g") != failed
    assert routes.load[failed] == 0


def test_a_server_that_failed_gives_its_groups_to_others_until_it_may_have_recovered() -> None:
    clock = Clock()
    routes = LLMRoutes(SERVERS, clock)
    home = str(routes.server_of("t1", "g"))
    routes.move("t1", "g", home)
    assert routes.server_of("t2", "g") == routes.server_of("t1", "g") != home
    clock.now += RECOVERY_SECONDS
    assert routes.server_of("t3", "g") == home


def test_where_all_servers_have_failed_all_are_tried() -> None:
    routes = LLMRoutes(["a", "b"], Clock())
    for server in ("a", "b"):
        routes.move("t", "g", server)
    assert {routes.server_of(f"t{number}", f"g{number}") for number in range(20)} == {"a", "b"}


def test_a_server_that_comes_is_used_and_coming_twice_changes_nothing() -> None:
    routes = LLMRoutes([])
    assert routes.server_of("t", "g") is None
    routes.add("a")
    assert routes.server_of("t", "g") == "a"
    routes.add("a")
    assert routes.load == {"a": 1}


def test_a_trajectory_whose_server_was_cleared_goes_on_with_one_that_came() -> None:
    routes = LLMRoutes(["a"])
    routes.server_of("t", "g")
    routes.keep(())
    assert routes.server_of("t", "g") is None
    routes.add("b")
    assert routes.server_of("t", "g") == "b"
    routes.release("t")
    assert routes.load == {"b": 0}


def test_a_server_that_fails_after_it_was_cleared_is_forgotten_all_the_same() -> None:
    routes = LLMRoutes(["a"])
    routes.server_of("t", "g")
    routes.keep(())
    routes.move("t", "g", failed="a")
    routes.release("t")
    assert routes.load == {}


def test_of_the_servers_that_are_kept_nothing_changes() -> None:
    routes = LLMRoutes(["a", "b"])
    at = {f"t{i}": routes.server_of(f"t{i}", f"g{i}") for i in range(8)}
    routes.keep(["a"])
    routes.add("c")
    now = {trajectory: routes.server_of(trajectory, "g" + trajectory[1:]) for trajectory in at}
    assert all(now[each] == "a" for each, before in at.items() if before == "a")
    assert set(now.values()) == {"a", "c"}
    assert sum(routes.load.values()) == len(at)


def test_it_stays_where_there_is_no_other() -> None:
    routes = LLMRoutes(["a"])
    routes.server_of("t", "g")
    routes.move("t", "g", "a")
    assert routes.server_of("t", "g") == "a"
    assert routes.load == {"a": 1}


STEPS = ("use", "move", "release", "add", "keep")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5))))
def test_load_is_the_number_of_trajectories_whatever_happens(steps: list[tuple[str, int]]) -> None:
    routes = LLMRoutes(SERVERS)
    alive: set[int] = set()
    for step, number in steps:
        name, group = str(number), str(number // 2)
        if step == "use" and routes.server_of(name, group) is not None:
            alive.add(number)
        elif step == "move" and number in alive:
            server = routes.server_of(name, group)
            assert server is not None
            routes.move(name, group, server)
        elif step == "release":
            routes.release(name)
            alive.discard(number)
        elif step == "add":
            routes.add(f"server {number}")
        elif step == "keep":
            kept = sorted(routes.load)[:number]
            gone = {each for each in alive if routes.server_of(str(each), "") not in kept}
            routes.keep(kept)
            alive -= gone
    assert sum(routes.load.values()) == len(alive)
    assert all(load >= 0 for load in routes.load.values())
