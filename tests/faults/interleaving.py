"""Several actors on the same queues, one call at a time; a seed decides who makes the next one.

Each actor is a thread, and exactly one of them runs at any moment, so that a seed that failed fails
again.
"""

import queue
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.queues import Queues

MAX_CALLS = 20_000
"""Of one interleaving: more means that it does not end."""
STEP_SECONDS = 30.0


class _Actor(threading.Thread):
    def __init__(self, act: Callable[[], None], waiting: "queue.SimpleQueue[_Actor]") -> None:
        super().__init__(daemon=True)
        self._act = act
        self._waiting = waiting
        self._turn = threading.Semaphore(0)
        self.ended = False
        self.error: BaseException | None = None

    def run(self) -> None:
        self._turn.acquire()
        try:
            self._act()
        except BaseException as error:  # raised again where the interleaving is run
            self.error = error
        self.ended = True
        self._waiting.put(self)

    def wait_for_turn(self) -> None:
        self._waiting.put(self)
        self._turn.acquire()

    def take_turn(self) -> None:
        self._turn.release()


class _OneByOne:
    """A part of the queues on which every call waits for its actor's turn."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._part, name)

        def call(*arguments: Any, **options: Any) -> Any:
            actor = threading.current_thread()
            if isinstance(actor, _Actor):
                actor.wait_for_turn()
            return method(*arguments, **options)

        return call


def one_by_one(queues: Queues) -> Queues:
    parts = {name: _OneByOne(part) for name, part in vars(queues).items()}
    return cast(Queues, SimpleNamespace(**parts))


def interleave(seed: int, *acts: Callable[[], None]) -> None:
    """Run all of `acts` to their end. Raises what one of them raised."""
    draw, waiting = random.Random(seed), queue.SimpleQueue[_Actor]()
    actors = [_Actor(act, waiting) for act in acts]
    for actor in actors:
        actor.start()
    for _ in range(MAX_CALLS):
        if not actors:
            return
        draw.choice(actors).take_turn()
        actor = waiting.get(timeout=STEP_SECONDS)
        if actor.error is not None:
            raise actor.error
        if actor.ended:
            actors.remove(actor)
    pytest.fail(f"seed {seed} does not end")


def for_each_seed(count: int, check: Callable[[int], None]) -> None:
    """A failure names its seed."""
    for seed in range(count):
        try:
            check(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
