"""Rows for every door, and the servers of other people's environments that some of them name."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.agent_server.environments.nemo_gym_server import Counter, row
from tests.agent_server.environments.openenv.conftest import OpenEnvServer
from tests.serving_threads import served

Row = dict[str, Any]
Rows = dict[str, Callable[[int], Row]]
"""`data_source` -> a maker of its rows, each of which has a number."""


def _task(agent: str) -> Callable[[int], Row]:
    return lambda number: {
        "data_source": agent,
        "question": f"{number} - {number} + {1 + number % 2}",
        "answer": str(1 + number % 2),
    }


def _lake(number: int) -> Row:
    """To the right is the goal, and below is a hole."""
    lake = {"desc": ["SG", "HF"], "is_slippery": False}
    return {"data_source": "gym", "env_id": "FrozenLake-v1", "kwargs": lake, "seed": number}


def _number(number: int) -> Row:
    """A number is guessed; brackets are put round what has none. A near miss is worth something."""
    bounds = {"min_number": 1, "max_number": 3}
    game = {"env_id": "GuessTheNumber-v0-train", "kwargs": bounds}
    return {"data_source": "textarena", **game, "seed": number}


def served_rows(directory: Path) -> Iterator[Rows]:
    """Rows whose servers run until the iterator is closed."""
    with ExitStack() as stack:
        counter = stack.enter_context(served(Counter().app()))
        guess = OpenEnvServer("guess", directory)
        stack.callback(guess.die)
        yield {
            **{name: _task(name) for name in ("mini_swe_agent", "openai_agent", "anthropic_agent")},
            "gym": _lake,
            "textarena": _number,
            "nemo_gym": lambda number: row(counter, expected_count=1 + number % 2),
            "openenv": lambda number: guess.row(question="Guess.", reset={"seed": 1 + number % 3}),
        }
