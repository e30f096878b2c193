"""Who counts as there, by what the orchestrator says of each."""

from launch.fleet_keeper import CALL_SECONDS, LOOK_SECONDS
from launch.roll_call import ABSENT_SECONDS, MOST_SECONDS, RollCall


class Looking:
    """A roll call whose clock goes on by a look at a time."""

    def __init__(self, *nodes: str) -> None:
        self.now = 100.0
        self._roll_call = RollCall(nodes, self.now)

    def look(self, silence: dict[str, float] | None, after: float = LOOK_SECONDS) -> set[str]:
        self.now += after
        return set(self._roll_call.look(silence, self.now))


def test_a_node_that_is_silent_for_long_is_away_and_back_when_it_is_heard() -> None:
    looking = Looking("a", "b")
    silent = 0.0
    while silent + LOOK_SECONDS < ABSENT_SECONDS:
        silent += LOOK_SECONDS
        assert looking.look({"a": 0.1, "b": silent}) == {"a", "b"}
    assert looking.look({"a": 0.1, "b": silent + LOOK_SECONDS}) == {"a"}
    assert looking.look({"a": 0.1, "b": 0.5}) == {"a", "b"}


def test_a_node_that_nobody_knows_any_more_is_silent() -> None:
    looking = Looking("a", "b")
    for _ in range(int(ABSENT_SECONDS / LOOK_SECONDS)):
        present = looking.look({"a": 0.1})
    assert present == {"a"}


def test_nobody_is_judged_by_the_time_without_an_orchestrator() -> None:
    looking = Looking("a", "b")
    assert looking.look({"a": 0.0, "b": 1.0}) == {"a", "b"}
    for _ in range(100):
        assert looking.look(None) == {"a", "b"}
    # It answers again, and has heard nobody so far.
    assert looking.look({"a": 200.0, "b": 200.0}) == {"a", "b"}
    assert looking.look({"a": 0.1, "b": 202.0}) == {"a", "b"}
    for _ in range(int(ABSENT_SECONDS / LOOK_SECONDS)):
        present = looking.look({"a": 0.1, "b": 210.0})
    assert present == {"a"}


def test_nobody_is_judged_by_a_time_in_which_nobody_looked() -> None:
    looking = Looking("a", "b")
    assert looking.look({"a": 60.0, "b": 60.0}, after=60.0) == {"a", "b"}
    assert looking.look({"a": 62.0, "b": 0.0}, after=MOST_SECONDS) == {"a", "b"}


def test_who_is_no_node_of_the_fleet_is_nobody() -> None:
    assert Looking("a").look({"a": 0.1, "guest": 0.1}) == {"a"}


def test_who_is_silent_is_away_also_where_each_look_waits_for_someone_else() -> None:
    """As long as a look may take: a wait, a status, and agent servers that do not answer."""
    slow = LOOK_SECONDS + 2 * CALL_SECONDS
    looking, silent = Looking("a", "b"), 0.0
    while silent < ABSENT_SECONDS:
        silent += slow
        present = looking.look({"a": 0.1, "b": silent}, after=slow)
    assert present == {"a"}
