"""The work of a chaos run: the reward of each Job is known before it runs.

- One row in `HOPELESS_EVERY` has members of equal reward: its Group must be filtered, all others
  must be delivered. So the checker knows the fate of every Job.
- A few Jobs are long: they still run when a Batch is complete, and when the next one is.
- One row in `TAGGED_EVERY` needs a tag that every other agent server has.
- A row may name a gate, which is a file that the first attempts of its Jobs wait for. It may say
  how many tokens its Jobs have, and be poison, which kills every server that runs it.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUN_ID = "chaos"
DATA_SOURCE = "chaos"
GROUP_SIZE = 4
BATCH_SIZES = (4, 16, 64, 128)
LARGEST_BATCH = max(BATCH_SIZES)
MAX_STALENESS = 1
LOOK_AHEAD_JOBS = 32
"""Jobs that wait while all Slots are busy, so that a kill meets work."""
HOPELESS_EVERY = 5
TAGGED_EVERY = 3
TAG = "even"
SHORTEST_SECONDS, MAX_SECONDS = 0.02, 0.05
"""Bounds on the time of all turns of a Job, or of each turn if it is long."""
TURNS = 2
LONG_EVERY, LONG_MEMBER, LONG_TURNS = 10, 1, 40
POISON_SECONDS = 0.3
"""Time until it kills: by then, Jobs that were lost with it before have run elsewhere."""


def rows(first: int, end: int) -> Iterator[dict[str, Any]]:
    for number in range(first, end):
        tags = [] if number % TAGGED_EVERY else [TAG]
        yield {"data_source": DATA_SOURCE, "number": number, "tags": tags}


def tags_of_server(index: int) -> tuple[str, ...]:
    return () if index % 2 else (TAG,)


def is_hopeless(number: int) -> bool:
    return number % HOPELESS_EVERY == 0


def reward(number: int, member: int) -> float:
    return 0.0 if is_hopeless(number) else float(member % 2)


def gate(instance: dict[str, Any], attempt: int) -> Path | None:
    return Path(instance["gate"]) if attempt == 1 and "gate" in instance else None


def batch_size(index: int) -> int:
    """Size of the trainer's Batch with this index."""
    return random.Random(f"batch {index}").choice(BATCH_SIZES)


def turn_seconds(number: int, member: int, attempt: int) -> list[float]:
    draw = random.Random(f"{number} {member} {attempt}")
    if number % LONG_EVERY == LONG_EVERY - 1 and member == LONG_MEMBER:
        return [draw.uniform(SHORTEST_SECONDS, MAX_SECONDS) for _ in range(LONG_TURNS)]
    return [draw.uniform(SHORTEST_SECONDS, MAX_SECONDS) / TURNS] * TURNS


def tokens(instance: dict[str, Any]) -> int:
    """Minimum number of tokens of a Job of this row; a turn has at least one."""
    return int(instance.get("tokens", 3))


def is_poison(instance: dict[str, Any]) -> bool:
    return bool(instance.get("poison"))
