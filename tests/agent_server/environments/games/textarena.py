"""A stand-in for TextArena, written from its contract: games, their states and their wrappers."""

import os
import random
import threading
from typing import Any

import nltk


class Kind:
    def __init__(self, name: str) -> None:
        self.name = name


class State:
    def __init__(self, players: int, seed: int) -> None:
        random.seed(seed)
        self.messages: list[tuple[int, str, Kind]] = []
        self.rewards: dict[int, float] | None = None
        self.info: dict[str, Any] = {"invalid_move": False, "turn_count": 0}
        self.refused = 0

    def say(self, text: str, kind: str = "GAME_MESSAGE") -> None:
        self.messages.append((-1, text, Kind(kind)))

    def end(self, reward: float, reason: str) -> None:
        self.rewards, self.info["reason"] = {0: reward}, reason

    def refuse(self, reward: float) -> None:
        """Tell the player once that its move is none, and end the game the second time in a row."""
        self.refused += 1
        if self.refused > 1:
            self.info["invalid_move"] = True
            self.end(reward, "Invalid Move")
        else:
            self.say("You attempted an invalid move.")


class SinglePlayerState(State):
    def __init__(self, players: int, seed: int) -> None:
        assert players == 1, f"The number of players has to be 1, received {players}"
        super().__init__(players, seed)


class Game:
    def reset(self, num_players: int, seed: int) -> None:
        self.state: State = SinglePlayerState(num_players, seed)
        self.begin()

    def begin(self) -> None:
        self.state.say("Play.")

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        self.state.say(action, "PLAYER_ACTION")
        self.play(action)
        return self.state.rewards is not None, {}

    def play(self, action: str) -> None:
        self.state.say("Go on.")

    def get_observation(self) -> tuple[int, list[tuple[int, str, Kind]]]:
        said, self.state.messages = self.state.messages, []
        return 0, said

    def close(self) -> tuple[dict[int, float] | None, dict[int, dict[str, Any]]]:
        return self.state.rewards, {0: self.state.info}


class Colours(Game):
    """A colour, drawn from a set, is to be named; the nearer the name, the better a lost game."""

    colours = {"red", "green", "blue", "yellow", "brown", "black", "white", "pink", "purple"}

    def begin(self) -> None:
        self.state.say("Name the colour, as in [red].", "PROMPT")
        self.colour = random.choice(list(self.colours))

    def play(self, action: str) -> None:
        named = action.strip("[]")
        if named == "?":
            self.state.say(f"It is {self.colour}.")
        elif named not in self.colours:
            self.state.refuse(-0.5)
        elif named == self.colour:
            self.state.end(1.0, "That is it.")
        else:
            self.state.refused = 0
            self.state.say("Another one.", "GAME_BOARD")


class Tennis(Game):
    def reset(self, num_players: int, seed: int) -> None:
        self.state = State(num_players, seed)
        self.begin()


class Words(Game):
    def begin(self) -> None:
        nltk.download("words", quiet=True)


class Breaks(Game):
    def play(self, action: str) -> None:
        if action == "[raise]":
            raise IndexError("the board is gone")
        if action == "[leave]":
            os._exit(7)
        threading.Event().wait(3600)


class Wrapper:
    """What a game is wrapped in by default: it adds brackets, and repeats the conversation."""

    def __init__(self, env: Game) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        return self.env.step(action if "[" in action else f"[{action}]")

    def get_observation(self) -> Any:
        raise AssertionError("it would repeat what the policy has seen")


GAMES = {game.__name__: game for game in (Colours, Game, Tennis, Words, Breaks)}


def make(env_id: str, **kwargs: Any) -> Wrapper:
    if env_id not in GAMES:
        raise ValueError(f"Environment {env_id} not found in registry.")
    return Wrapper(GAMES[env_id](**kwargs))
