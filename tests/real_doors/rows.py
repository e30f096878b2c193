"""Rows for every door, and the servers of other people's environments that some of them name."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.real_environments.conftest import StartTheirs
from tests.real_environments.test_nemo_gym import COUNTER
from tests.real_environments.test_nemo_gym import row as first_row
from tests.real_environments.verifiers_rows import REASONING, verifiers_rows

Row = dict[str, Any]
Rows = dict[str, Callable[[int], Row]]
"""Environment -> a maker of its rows, each of which has a number."""


def environment(row: Mapping[str, Any]) -> str:
    """Name of the environment that a row is for. Those of verifiers are many."""
    named = row.get("env", "").rpartition(":")[2]
    return f"{row['data_source']} {named}".rstrip()


def adapter(environment: str) -> str:
    """The environment of ours that plays it."""
    return environment.partition(" ")[0]


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


def _verifiers() -> Rows:
    """A number to guess in several turns; a poem of growing lines, of which nonsense is worth a
    share; and a question whose answer is 1."""
    guesses = verifiers_rows("guess_number", most=3, rows=20)
    poems = verifiers_rows("stardata.envs.constraint_gym", forms=["snowball"])
    (counting, *_) = verifiers_rows(
        REASONING, gym="letter_counting", num_train_examples=2, num_eval_examples=1
    )
    made = (
        lambda number: guesses[number % len(guesses)],
        lambda number: poems[number % len(poems)],
        lambda _: counting,
    )
    return {environment(make(0)): make for make in made}


def served_rows(directory: Path) -> Iterator[Rows]:
    """Rows whose servers run until the iterator is closed."""
    theirs = StartTheirs(directory)
    try:
        counter = theirs.nemo_gym(*COUNTER)
        guess = {"url": theirs.openenv("guess").url, "question": "Guess.", "observation": "prompt"}
        asked = first_row(counter, COUNTER[0]) | {"initial_count": 0}
        yield {
            **{name: _task(name) for name in ("mini_swe_agent", "openai_agent", "anthropic_agent")},
            "gym": _lake,
            "textarena": _number,
            "nemo_gym": lambda number: asked | {"expected_count": 1 + number % 2},
            "openenv": lambda number: (
                guess | {"data_source": "openenv", "reset": {"seed": 1 + number % 3}}
            ),
            **_verifiers(),
        }
    finally:
        theirs.stop()
