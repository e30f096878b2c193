"""The environment of Gymnasium: actions as words, worlds as text, returns as rewards."""

from typing import Any

import pytest

from agent_server.environments.gym import Gym
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed
from rollyard.messages import Grade, Prompt
from tests.agent_server.fakes import SandboxOfNothing, said

LAKE = {"data_source": "gym", "kwargs": {"is_slippery": False}, "seed": 7}
PATH = ("down", "down", "right", "right", "down", "right")


def begun(**row: Any) -> tuple[InThread, str]:
    episode = InThread(Gym)
    prompt = Prompt(prompt_id="row", instance={"data_source": "gym"} | row)
    (asked,) = episode.start(prompt, SandboxOfNothing()).messages
    return episode, asked.content


def test_the_world_and_its_actions_are_told_as_text() -> None:
    _, asked = begun(**LAKE)
    assert "left, down, right, up" in asked
    assert "[S]FFF\nFHFH\nFFFH\nHFFG" in asked
    assert "\x1b" not in asked


def test_an_action_moves_the_policy() -> None:
    episode, _ = begun(**LAKE)
    (seen,) = episode.step(said("I will not go up or left.\nDown!")).messages
    assert "SFFF\n[F]HFH" in seen.content


def test_the_goal_is_rewarded() -> None:
    episode, _ = begun(**LAKE)
    seen = [episode.step(said(word)) for word in PATH]
    assert [each.done for each in seen] == [False] * 5 + [True]
    grade = episode.grade()
    assert (grade.reward, grade.components) == (1.0, {"return": 1.0})
    assert grade.metrics == {"steps": 6.0, "ended": 1.0, "success": 1.0}


def test_a_hole_is_not() -> None:
    episode, _ = begun(**LAKE)
    assert not episode.step(said("down")).done
    assert episode.step(said("right")).done
    assert episode.grade().reward == 0.0


def test_what_names_no_action_changes_nothing() -> None:
    episode, _ = begun(**LAKE)
    (told,) = episode.step(said("hm")).messages
    assert "left, down, right, up" in told.content
    assert episode.grade().metrics["steps"] == 0.0


@pytest.mark.parametrize("words", [(), ("hm",), ("up",), ("up", "left")])
def test_where_steps_cost_something_an_episode_that_is_not_ended_costs_all_of_them(
    words: tuple[str, ...],
) -> None:
    episode, _ = begun(env_id="CliffWalking-v1", max_steps=20)
    for word in words:
        episode.step(said(word))
    grade = episode.grade()
    assert grade.reward <= -20.0
    assert grade.components == {"return": -float(len(set(words) - {"hm"}))}


def test_nothing_is_earned_by_what_was_left_undone() -> None:
    episode, _ = begun(**LAKE)
    for word in PATH[:4]:
        episode.step(said(word))
    episode.step(said("down"))
    episode.step(said("left"))
    episode.step(said("right"))  # once more would be the goal
    assert episode.grade().reward == 0.0


@pytest.mark.parametrize("kwargs", [{"is_slippery": False}, {"is_slippery": True}])
def test_a_row_can_be_solved_also_on_slippery_ice(kwargs: dict[str, Any]) -> None:
    untouched, _ = begun(kwargs=kwargs, seed=3)
    assert untouched.grade().reward == 0.0
    episode, _ = begun(kwargs=kwargs, seed=3)
    episode.solve()
    assert episode.grade().reward == 1.0


def test_a_row_without_a_solution_says_so() -> None:
    episode, _ = begun(kwargs={"desc": ["SH", "HG"], "is_slippery": False})
    with pytest.raises(EnvironmentFailed, match="no episode with a positive return"):
        episode.solve()


def test_members_with_the_same_actions_have_the_same_luck() -> None:
    def play() -> Grade:
        episode, _ = begun(seed=11, env_id="Blackjack-v1")
        episode.step(said("hit"))
        episode.step(said("stick"))
        return episode.grade()

    assert play() == play()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"env_id": "NoSuch-v0"}, "cannot make 'NoSuch-v0'"),
        ({"env_id": "os:system-v0"}, "no environment can be made"),
        ({"env_id": 7}, "no environment can be made"),
        ({"kwargs": {"nonsense": 1}}, "unexpected keyword"),
        ({"env_id": "Pendulum-v1"}, "the actions of 'Pendulum-v1'"),
        ({"max_steps": 0}, "max_steps must be a whole number"),
        ({"seed": "x"}, "seed must be a whole number"),
    ],
)
def test_a_row_that_cannot_be_is_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        begun(**row)
