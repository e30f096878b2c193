"""Games of TextArena, here of a stand-in, played in a process of another Python."""

import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.hosts import EnvironmentHosts
from agent_server.environments.hosted.process import HostUnavailable
from agent_server.environments.protocol import EnvironmentFailed, EnvironmentKilled, Episode
from agent_server.registry import environments_apart
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.sandbox.roots import RootSources
from rollyard.messages import Prompt
from tests.agent_server.fakes import PATIENCE_SECONDS, SandboxOfNothing, said

GAMES = Path(__file__).with_name("games")

Play = Callable[..., tuple[Episode, str]]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tool environment that has the stand-in, and what ours needs beside it."""
    directory = tmp_path_factory.mktemp("tools")
    EnvBuilder(symlinks=True).create(directory / "textarena")
    (packages,) = (directory / "textarena").glob("lib/python3*/site-packages")
    (packages / "games.pth").write_text(f"{GAMES}\n{sysconfig.get_path('purelib')}\n")
    return directory


def hosts_of(tools: Path) -> EnvironmentHosts:
    sources = RootSources(tool_environments=tools)
    return EnvironmentHosts((), environments_apart(), sources, ProcessLimits())


@pytest.fixture(scope="module")
def hosts(tools: Path) -> Iterator[EnvironmentHosts]:
    made = hosts_of(tools)
    yield made
    made.close()


@pytest.fixture
def play(hosts: EnvironmentHosts) -> Iterator[Play]:
    begun: list[Episode] = []

    def begin(env_id: str = "Colours", **row: Any) -> tuple[Episode, str]:
        episode = make(hosts)
        begun.append(episode)
        return episode, opened(episode, env_id=env_id, **row)

    yield begin
    for episode in begun:
        episode.close()


def make(hosts: EnvironmentHosts) -> Episode:
    return hosts.apart(NO_REWARDS)["textarena"].make()


def opened(episode: Episode, **row: Any) -> str:
    prompt = Prompt(prompt_id="row", instance={"data_source": "textarena"} | row)
    (asked,) = episode.start(prompt, SandboxOfNothing()).messages
    return asked.content


def answer(episode: Episode, move: str) -> str:
    (message,) = episode.step(said(move)).messages
    return message.content


def colour(episode: Episode) -> str:
    return answer(episode, "?").removeprefix("It is ").strip(".")


def test_a_game_that_is_won_gives_its_reward(play: Play) -> None:
    episode, asked = play(question="A game.")
    assert asked == "A game.\n\nName the colour, as in [red]."
    assert episode.step(said(colour(episode))).done
    grade = episode.grade()
    assert (grade.reward, grade.reason) == (1.0, "That is it. (after 2 moves)")
    assert grade.metrics == {"moves": 2.0, "ended": 1.0, "invalid": 0.0}


def test_the_policy_is_shown_what_is_new_and_not_what_it_said(play: Play) -> None:
    episode, _ = play()
    wrong = "red" if colour(episode) != "red" else "blue"
    assert answer(episode, wrong) == "Another one."
    assert answer(episode, f"[{wrong}]") == "Another one."


def test_a_move_that_is_none_is_told_and_the_game_says_what_it_costs(play: Play) -> None:
    episode, _ = play()
    assert "invalid move" in answer(episode, "hm")
    assert episode.step(said("hm")).done
    grade = episode.grade()
    assert (grade.reward, grade.metrics["invalid"]) == (-0.5, 1.0)


def test_a_game_that_is_cut_off_earns_what_it_does_without_further_moves(play: Play) -> None:
    episode, _ = play()
    assert colour(episode)
    grade = episode.grade()
    assert (grade.reward, grade.reason) == (-0.5, "the game was cut off (after 1 moves)")
    assert grade.metrics == {"moves": 1.0, "ended": 0.0, "invalid": 0.0}


def test_one_that_then_never_ends_is_lost(play: Play) -> None:
    episode, _ = play("Game")
    assert answer(episode, "hello") == "Go on."
    assert episode.grade().reward == -1.0


def test_a_seed_names_the_same_game_in_every_process_of_every_server(
    play: Play, tools: Path
) -> None:
    def drawn(seed: int) -> str:
        return colour(play(seed=seed)[0])

    here = [drawn(seed) for seed in range(3)]
    assert here == [drawn(seed) for seed in range(3)]
    assert len(set(here)) > 1
    other = hosts_of(tools)
    for seed, name in enumerate(here):
        episode = make(other)
        opened(episode, env_id="Colours", seed=seed)
        assert colour(episode) == name
        episode.close()
    other.close()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"env_id": "Tennis"}, "'Tennis' is a game of several players"),
        ({"env_id": "Nope"}, "cannot make 'Nope': Environment Nope not found"),
        ({"env_id": "Game", "kwargs": {"size": 3}}, "cannot make 'Game': .* no arguments"),
        ({"env_id": "Game", "seed": -1}, "seed must be a whole number from 0"),
        ({"env_id": 7}, r"row is not usable: Expected `str`, got `int` - at `\$.env_id`"),
        ({"env_id": "Words"}, "nltk's data 'words', which no episode downloads"),
    ],
)
def test_a_row_that_cannot_be_played_is_refused_with_the_reason(
    play: Play, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        play(**row)


@pytest.mark.parametrize(
    ("move", "reason"), [("raise", "IndexError .*the board is gone"), ("leave", "status 7")]
)
def test_a_game_that_breaks_fails_its_attempt(play: Play, move: str, reason: str) -> None:
    episode, _ = play("Breaks")
    with pytest.raises(EnvironmentFailed, match=reason):
        episode.step(said(move))


def test_a_game_that_hangs_is_killed(play: Play) -> None:
    episode, _ = play("Breaks")
    killed = threading.Event()

    def step() -> None:
        with pytest.raises(EnvironmentKilled):
            episode.step(said("hang"))
        killed.set()

    threading.Thread(target=step, daemon=True).start()
    episode.kill()
    assert killed.wait(PATIENCE_SECONDS)


def test_packages_that_do_not_work_are_not_laid_at_the_row(tmp_path: Path) -> None:
    EnvBuilder(symlinks=True).create(tmp_path / "textarena")
    hosts = hosts_of(tmp_path)
    episode = make(hosts)
    with pytest.raises(HostUnavailable, match="environments cannot be started"):
        opened(episode, env_id="Colours")
    episode.close()
    hosts.close()
