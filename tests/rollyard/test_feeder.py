"""Each row is fed once, whatever becomes of the requests that carry it."""

from collections.abc import Sequence

import pytest

from rollyard.errors import InvalidMessage, TooLarge, Unavailable
from rollyard.feeder import MAX_FED_AT_ONCE, Feeder
from rollyard.messages import Prompt

MAX_TOGETHER = 4


class TaskQueue:
    """Takes at most so many Prompts in a request, and none that is spoilt or larger than that."""

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.away = False

    def post(self, prompts: Sequence[Prompt]) -> None:
        if self.away:
            raise Unavailable("the orchestrator is away")
        if sum(prompt.instance.get("size", 1) for prompt in prompts) > MAX_TOGETHER:
            raise TooLarge("the body is larger than what fits")
        if any(prompt.instance.get("spoilt") for prompt in prompts):
            raise InvalidMessage("unknown environment")
        self.fed += [prompt.instance["row"] for prompt in prompts]


def rows(count: int, **marked: int) -> list[dict[str, object]]:
    """`spoilt=3` spoils row 3, `large=3` makes it larger than any request may be."""
    made: list[dict[str, object]] = [{"data_source": "x", "row": n} for n in range(count)]
    if "spoilt" in marked:
        made[marked["spoilt"]]["spoilt"] = True
    if "large" in marked:
        made[marked["large"]]["size"] = MAX_TOGETHER + 1
    return made


def test_rows_that_are_too_large_together_are_fed_one_by_one() -> None:
    queue = TaskQueue()
    feeder = Feeder(rows(8), queue.post)
    feeder.feed(8)
    assert queue.fed == list(range(8))


@pytest.mark.parametrize(("spoils", "error"), [("spoilt", InvalidMessage), ("large", TooLarge)])
def test_a_row_that_nobody_takes_is_reported_once_and_spoils_no_other(
    spoils: str, error: type[Exception]
) -> None:
    queue = TaskQueue()
    feeder = Feeder(rows(4, **{spoils: 1}), queue.post)
    with pytest.raises(error):
        feeder.feed(4)
    feeder.feed(4)
    assert queue.fed == [0, 2, 3]
    assert feeder.exhausted


def test_rows_that_could_not_be_fed_are_fed_first_the_next_time() -> None:
    queue = TaskQueue()
    feeder = Feeder(rows(4), queue.post)
    queue.away = True
    with pytest.raises(Unavailable):
        feeder.feed(2)
    queue.away = False
    feeder.feed(3)
    assert queue.fed == [0, 1, 2]
    assert not feeder.exhausted


def test_what_was_forgotten_and_is_too_large_together_is_fed_again_one_by_one() -> None:
    queue = TaskQueue()
    feeder = Feeder(rows(6), queue.post)
    feeder.feed(6)
    queue.fed.clear()
    assert feeder.feed_again(5) == 6
    assert queue.fed == list(range(6))


def test_so_many_rows_are_drawn_as_are_wanted() -> None:
    wanted = MAX_FED_AT_ONCE + 3
    left, requests = iter(rows(2 * wanted)), list[int]()
    Feeder(left, lambda prompts: requests.append(len(prompts))).feed(wanted)
    assert requests == [MAX_FED_AT_ONCE, 3]
    assert next(left)["row"] == wanted


def test_a_feed_that_goes_on_in_its_run_misses_nothing_that_the_run_had_before() -> None:
    first, queue = Feeder(rows(8), lambda _: None), TaskQueue()
    first.feed(3)
    state = first.state(lambda: [])
    first.feed(2)
    again = Feeder(rows(8), queue.post)
    again.restore(state)
    assert again.feed_again(groups_fed=5) == 0
    again.feed(2)
    assert again.feed_again(groups_fed=5) == 0, "rows 3 and 4 were fed before the restart"
    assert queue.fed == [3, 4]
