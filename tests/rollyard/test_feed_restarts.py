"""Whatever happens to a trainer and its Run, a row is trained on or filtered once: never lost, and
in a Run that lives on never repeated."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rollyard.errors import Unavailable
from rollyard.feeder import Feeder, from_state_dict, state_dict
from rollyard.messages import Prompt

ITEM_ROWS = 3


class SamplingRun:
    """Samples Prompts: each is open until it is filtered or delivered, and gone once it is
    acknowledged."""

    def __init__(self) -> None:
        self.fed: dict[str, int] = {}
        """Prompt id -> row, of all there ever were."""
        self.open: list[str] = []
        self.delivered: list[str] = []
        self.away = False

    def post(self, prompts: Sequence[Prompt]) -> None:
        if self.away:
            raise Unavailable("the orchestrator is away")
        for prompt in prompts:
            if prompt.prompt_id not in self.fed:
                self.fed[prompt.prompt_id] = prompt.instance["row"]
                self.open.append(prompt.prompt_id)

    def alive(self) -> set[str]:
        return {*self.open, *self.delivered}


def dataloader() -> Iterator[list[dict[str, Any]]]:
    numbers = itertools.count()
    while True:
        yield [{"data_source": "x", "row": next(numbers)} for _ in range(ITEM_ROWS)]


class Restarts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.run = SamplingRun()
        self.ended: Counter[int] = Counter()
        """Row -> how often it was trained on or filtered, in this Run or one it goes on from."""
        self.ended_before: set[int] = set()
        self.behind = False
        """The feed was put back in this Run: of what the Run has done since then, it knows only
        when it comes by again."""
        self.saved: tuple[str, Counter[int], set[int], bool] | None = None
        self.start()

    def start(self) -> None:
        self.feeder = Feeder(dataloader(), self.run.post)

    def restore(self) -> None:
        self.start()
        assert self.saved is not None
        self.feeder.restore(from_state_dict(json.loads(self.saved[0])))

    @rule(wanted=st.integers(1, 5))
    def feed(self, wanted: int) -> None:
        self.feeder.feed_again(len(self.run.fed))
        self.feeder.feed(wanted)

    @rule(wanted=st.integers(1, 5))
    def feed_in_vain(self, wanted: int) -> None:
        self.run.away = True
        try:
            self.feeder.feed(wanted)
        except Unavailable:
            self.run.away = False

    @precondition(lambda self: self.run.open)
    @rule(data=st.data())
    def filter(self, data: st.DataObject) -> None:
        prompt = data.draw(st.sampled_from(self.run.open))
        self.run.open.remove(prompt)
        self.ended[self.run.fed[prompt]] += 1

    @precondition(lambda self: self.run.open)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        prompt = data.draw(st.sampled_from(self.run.open))
        self.run.open.remove(prompt)
        self.run.delivered.append(prompt)

    @precondition(lambda self: self.run.delivered)
    @rule()
    def acknowledge(self) -> None:
        prompt = self.run.delivered.pop(0)
        self.ended[self.run.fed[prompt]] += 1
        self.feeder.done({prompt}, self.run.alive())

    @rule()
    def checkpoint(self) -> None:
        state = state_dict(self.feeder.state(self.run.alive))
        known = {*self.ended_before, *self.ended}
        self.saved = json.dumps(state), self.ended.copy(), known, self.behind

    @precondition(lambda self: self.saved)
    @rule()
    def go_on_in_the_same_run(self) -> None:
        self.restore()
        self.behind = True

    @precondition(lambda self: self.saved)
    @rule()
    def go_on_in_a_new_run(self) -> None:
        assert self.saved is not None
        _, ended, self.ended_before, self.behind = self.saved
        self.ended = Counter() if self.behind else ended.copy()
        self.run = SamplingRun()
        self.restore()

    @invariant()
    def no_row_is_repeated(self) -> None:
        assert all(times == 1 for times in self.ended.values())
        rows = [self.run.fed[prompt] for prompt in self.run.alive()]
        assert len(rows) == len(set(rows)), "one row is sampled twice at once"
        assert not set(rows) & set(self.ended)

    def teardown(self) -> None:
        """No row is lost: all come, in the end, up to the last that was ever drawn."""
        self.run.away = False
        last = max([*self.ended, *self.run.fed.values()], default=0)
        self.feeder.feed(2 * last + 20)
        met = {*self.ended_before, *self.ended, *self.run.fed.values()}
        assert set(range(last + 1)) <= met


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
