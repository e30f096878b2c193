"""Games of the real textarena package, in processes of its own Python."""

from collections.abc import Callable, Iterator

import pytest

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.hosts import EnvironmentHosts
from agent_server.environments.protocol import EnvironmentFailed, Episode
from agent_server.registry import environments_apart
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.sandbox.roots import RootSources
from rollyard.messages import Grade, Prompt
from tests.agent_server.fakes import SandboxOfNothing, said

TOWERS = ("[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]")

Begin = Callable[..., tuple[Episode, str]]


@pytest.fixture(scope="module")
def hosts() -> Iterator[EnvironmentHosts]:
    made = EnvironmentHosts((), environments_apart(), RootSources(), ProcessLimits())
    yield made
    made.close()


@pytest.fixture
def begin(hosts: EnvironmentHosts) -> Iterator[Begin]:
    begun: list[Episode] = []

    def begin(env_id: str, seed: int = 0) -> tuple[Episode, str]:
        episode = hosts.apart(NO_REWARDS)["textarena"].make()
        begun.append(episode)
        row = {"data_source": "textarena", "env_id": env_id, "seed": seed}
        (asked,) = episode.start(Prompt(prompt_id="row", instance=row), SandboxOfNothing()).messages
        return episode, asked.content

    yield begin
    for episode in begun:
        episode.close()


def play(episode: Episode, *moves: str) -> Grade:
    for move in moves[:-1]:
        assert not episode.step(said(move)).done
    assert episode.step(said(moves[-1])).done
    return episode.grade()


def test_a_tower_is_moved(begin: Begin) -> None:
    episode, asked = begin("TowerOfHanoi-v0")
    assert "A: [3, 2, 1]" in asked
    (seen,) = episode.step(said(TOWERS[0])).messages
    assert seen.content.startswith("You moved disk 1 from A to C.")
    assert play(episode, *TOWERS[1:]).reward == 1.0


def test_half_a_tower_is_a_share_of_it_and_nonsense_nothing(begin: Begin) -> None:
    half, _ = begin("TowerOfHanoi-v0")
    for move in TOWERS[:4]:
        half.step(said(move))
    assert half.grade().reward == pytest.approx(1 / 3)
    assert play(begin("TowerOfHanoi-v0")[0], "hm", "hm").reward == 0.0


def test_a_number_is_found_by_halves(begin: Begin) -> None:
    for seed in (1, 2, 3):
        episode, _ = begin("GuessTheNumber-v0", seed)
        least, most, done = 1, 20, False
        while not done:
            guess = (least + most) // 2
            observation = episode.step(said(f"I say [{guess}]"))
            done = observation.done
            if not done:
                higher = "higher" in observation.messages[0].content
                least, most = (guess + 1, most) if higher else (least, guess - 1)
        assert episode.grade().reward == 1.0


def test_a_seed_names_a_code(begin: Begin) -> None:
    def pegs(seed: int) -> str:
        (seen,) = begin("Mastermind-v0", seed)[0].step(said("[1 2 3 4]")).messages
        return seen.content

    assert [pegs(seed) for seed in range(4)] == [pegs(seed) for seed in range(4)]
    assert len({pegs(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("env_id", "reason"),
    [
        ("TicTacToe-v0", "number of players has to be 2"),
        ("SecretMafia-v0", "several players|cannot make"),
        ("Wordle-v0", "nltk's data .* which no episode downloads"),
        ("TwentyQuestions-v0", "API key not found"),
    ],
)
def test_a_game_that_cannot_be_played_here_says_why(begin: Begin, env_id: str, reason: str) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        begin(env_id)
