"""The benchmark of weight updates: what counts as lost, and as wrong."""

import pytest

from benchmarks.weights.flight import Flown, FlownToken, silence
from benchmarks.weights.update import TOKENS, judged
from rollyard.messages import WeightReport

REPORT = WeightReport(version=1, servers=("one",), paused_seconds=0.5, load_seconds=0.2)
OLD, NEW = [[0.0], [1.0]], [[1.0], [0.0]]
"""How far a token of each version is off under both."""


def flown(versions: list[int], times: list[float], *, ended: bool = True) -> Flown:
    tokens = [FlownToken(7, -1.0, at) for at in times]
    return Flown([1], tokens, versions, ended)


def test_a_token_of_other_weights_than_its_label_says_is_counted() -> None:
    response = flown([0, 1], [0.0, 0.1])
    right = [[0.0, 1.0], [1.0, 0.0]]
    early = [[0.0, 0.0], [1.0, 1.0]]
    assert judged([response], [right], REPORT).wrong_versions == 0
    assert judged([response], [right], REPORT).crossed == 1
    assert judged([response], [early], REPORT).wrong_versions == 1


def test_a_token_that_is_of_neither_weights_shows_in_the_gap_alone() -> None:
    neither = judged([flown([1], [0.0])], [[[0.5], [0.25]]], REPORT)
    assert (neither.wrong_versions, neither.gap) == (0, 0.25)


@pytest.mark.parametrize(
    ("tokens", "labels", "ended", "lost"),
    [
        (TOKENS, TOKENS, True, 0),
        (TOKENS, TOKENS, False, 1),
        (TOKENS - 1, TOKENS - 1, True, 1),
        (TOKENS, 0, True, 1),
    ],
)
def test_a_response_is_lost_unless_all_of_it_came_with_its_labels(
    tokens: int, labels: int, ended: bool, lost: int
) -> None:
    response = flown([0] * labels, [0.0] * tokens, ended=ended)
    off = [[[0.0] * tokens, [1.0] * tokens]]
    assert judged([response], off, REPORT).lost == lost


def test_the_pause_is_that_beyond_the_load_and_the_silence_that_of_all() -> None:
    one, other = flown([0, 0], [0.0, 1.0]), flown([0, 0], [0.5, 1.25])
    assert silence([one, other]) == 0.5
    seen = judged([one, other], [[[0.0] * 2, [1.0] * 2]] * 2, REPORT)
    assert seen.pause_beyond_load_seconds == pytest.approx(0.3)
