"""Which LLM server a trajectory talks to."""

from hypothesis import given
from hypothesis import strategies as st

from agent_server.routing import Routes


def test_a_trajectory_stays_with_its_server() -> None:
    routes = Routes(["a", "b"])
    first = routes.server_of("t1")
    routes.server_of("t2")
    routes.server_of("t3")
    assert routes.server_of("t1") == first


def test_a_new_trajectory_goes_to_the_least_loaded_server() -> None:
    routes = Routes(["a", "b"])
    first = routes.server_of("t1")
    second = routes.server_of("t2")
    assert {first, second} == {"a", "b"}
    routes.release("t1")
    assert routes.server_of("t3") == first


def test_a_trajectory_leaves_a_server_that_failed_it() -> None:
    routes = Routes(["a", "b"])
    failed = routes.server_of("t")
    routes.move("t", failed)
    assert routes.server_of("t") != failed
    assert routes.load()[failed] == 0


def test_it_stays_where_there_is_no_other() -> None:
    routes = Routes(["a"])
    routes.server_of("t")
    routes.move("t", "a")
    assert routes.server_of("t") == "a"
    assert routes.load() == {"a": 1}


@given(st.lists(st.tuples(st.sampled_from(["use", "move", "release"]), st.integers(0, 5))))
def test_load_is_the_number_of_trajectories_whatever_happens(steps: list[tuple[str, int]]) -> None:
    routes = Routes(["a", "b", "c"])
    alive: set[int] = set()
    for step, number in steps:
        name = str(number)
        if step == "use":
            routes.server_of(name)
            alive.add(number)
        elif step == "move" and number in alive:
            routes.move(name, routes.server_of(name))
        elif step == "release":
            routes.release(name)
            alive.discard(number)
    assert sum(routes.load().values()) == len(alive)
    assert all(load >= 0 for load in routes.load().values())
