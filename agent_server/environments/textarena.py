"""Games of TextArena for one player.

A row names the game and its seed: `{"data_source": "textarena", "env_id": "Mastermind-v0", "seed":
7}`. All members of a Group see the same luck. Each response is a move; the policy is shown what the
game says since its last one. The reward is the game's. A game that is cut off is played to its end
with moves that it does not take: where a loss costs something, to stop would pay.

TextArena draws its luck from Python's one random number generator, and may ask for data that are
not there: it needs a process of its own, and gets no download.
"""

import random
import sys
from typing import Any

import msgspec

from agent_server.environments.protocol import EnvironmentFailed, Needs, Observation, Response
from agent_server.rewards.protocol import warmed_by
from agent_server.sandbox.protocol import Sandbox
from rollyard.codec import learnt
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, Grade, Prompt, check

_POLICY = 0
"""Number of the only player."""
_ECHO = "PLAYER_ACTION"
"""Kind of what a game tells the player that the player said."""
_LOST = -1.0
"""TextArena's reward for a game that is lost."""
_MOST_REFUSED = 200
"""Moves, none of which it takes, after which a game that goes on is lost."""
_MAX_MOVE_CHARACTERS = 4_000  # Python reads no longer numbers, at which games would raise
_FIX = 'a row is {"data_source": "textarena", "env_id": "Mastermind-v0", "seed": 7, "kwargs": {}}'


class TextArenaRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says of its game."""

    env_id: str
    seed: int = 0
    kwargs: dict[str, Any] = {}
    """Arguments of the game's class."""
    question: str = ""
    """Text before the game's own."""

    def __post_init__(self) -> None:
        check(self.seed >= 0, f"seed must be a whole number from 0, got {self.seed}")


def _import_games() -> None:
    """Import what every game does, which takes longer than most of them."""
    import nltk  # noqa: F401
    import textarena  # noqa: F401


@warmed_by(_import_games)
class TextArena:
    needs = Needs(packages="textarena")

    def __init__(self) -> None:
        self._game: Any = None
        self._inner: Any = None
        """The game without its wrappers, which repeat the whole conversation at every move."""
        self._moves = 0
        self._done = False

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        row = _row(prompt.instance)
        random.seed(row.seed)  # for what is drawn before the game seeds it itself
        self._game, self._inner = _made(row)
        shown = "\n\n".join(part for part in (row.question, self._seen()) if part)
        return (ChatMessage(role="user", content=shown),)

    def step(self, response: Response) -> Observation:
        self._moves += 1
        self._move(response.content[-_MAX_MOVE_CHARACTERS:])
        if self._done:
            return Observation(done=True)
        return Observation(messages=(ChatMessage(role="user", content=self._seen()),))

    def grade(self) -> Grade:
        ended = self._done
        for _ in range(_MOST_REFUSED):
            if self._done:
                break
            self._move("")
        rewards, told = self._game.close()
        reward = float(rewards[_POLICY]) if self._done else _LOST
        about = told[_POLICY]
        how = about.get("reason", "") if ended else "the game was cut off"
        return Grade(
            reward=reward,
            metrics={
                "moves": float(self._moves),
                "ended": float(ended),
                "invalid": float(ended and about["invalid_move"]),
            },
            reason=" ".join(f"{how} (after {self._moves} moves)".split()),
        )

    def _move(self, text: str) -> None:
        self._done, _ = self._game.step(action=text)

    def _seen(self) -> str:
        """What the game has said since it was last asked, without what the policy said."""
        _, said = self._inner.get_observation()
        return "\n".join(text.strip() for _, text, kind in said if kind.name != _ECHO)


def _row(instance: Any) -> TextArenaRow:
    try:
        return msgspec.convert(instance, learnt(TextArenaRow))
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"the textarena row is not usable: {error}", fix=_FIX) from error


def _made(row: TextArenaRow) -> tuple[Any, Any]:
    """The game, begun, with and without its wrappers. Raises `InvalidMessage` and
    `EnvironmentFailed`."""
    # Imported here: the packages are those of another Python.
    import nltk
    import textarena

    nltk.download = _download_nothing
    try:
        game = textarena.make(row.env_id, **row.kwargs)
        game.reset(num_players=1, seed=row.seed)
    except (AssertionError, ImportError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidMessage(f"TextArena cannot make {row.env_id!r}: {reason}", fix=_FIX) from error
    if not isinstance(game.state, textarena.SinglePlayerState):
        raise InvalidMessage(
            f"{row.env_id!r} is a game of several players, and there is nobody to play against",
            fix="take one of the games for one player: Mastermind-v0, TowerOfHanoi-v0, 2048-v0",
        )
    inner = game
    while isinstance(inner, textarena.Wrapper):
        inner = inner.env
    return game, inner


def _download_nothing(data: str, *_: object, **__: object) -> None:
    raise EnvironmentFailed(
        f"the game needs nltk's data {data!r}, which no episode downloads",
        fix=f"{sys.executable} -m nltk.downloader -d {sys.prefix}/nltk_data {data}",
    )
