r"""The grader of mathematical answers: math-verify on the last `\boxed{...}` of the response.

What the policy wrote is parsed and compared in a forked process with limits, as hostile LaTeX can
take any time and memory (`9^{9^{9^9}}`). An answer that exceeds them is a wrong answer.
"""

import logging
from itertools import chain, product
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify

from agent_server.rewards.answers import last_boxed
from agent_server.rewards.bounded import Tell, news_from
from agent_server.rewards.latex import readings
from agent_server.rewards.protocol import GroundTruth, ScoreTask, warmed_by
from rollyard.errors import InvalidMessage
from rollyard.messages import Grade

MAX_ANSWER_CHARACTERS = 2000
"""Longer answers are not compared: a table of all candidates is none."""

# The box comes first, else math-verify would prefer a "final answer is" within it.
_LATEX = (LatexExtractionConfig(boxed_match_priority=0),)
_GOLD_PARSED, _ANSWER_PARSED, _EQUAL, _DIFFERENT = b"g", b"a", b"=", b"/"

_REASONS = {
    _GOLD_PARSED: "the boxed answer cannot be read as mathematics",
    _ANSWER_PARSED: "the boxed answer cannot be compared within the limits",
    _EQUAL: "the boxed answer equals the expected one",
    _DIFFERENT: "the boxed answer differs from the expected one",
}


def _warm_up() -> None:
    """Fill the caches of math-verify, which all forks inherit: each would need 0.1 s for it."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its limits are off
    _parsed(r"\frac{1}{2}")


@warmed_by(_warm_up)
def grade(task: ScoreTask) -> Grade:
    """1.0 for an answer that equals one of the expected ones. Raises `InvalidMessage` for a row
    whose expected answer is no mathematics, and `Unavailable`."""
    golds = _golds(task.ground_truth)
    answer = last_boxed(task.solution_str)
    if not answer:
        return _graded("the response has no boxed answer", boxed=False)
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return _graded(f"the boxed answer has more than {MAX_ANSWER_CHARACTERS} characters")
    news = news_from(lambda tell: _compare(answer, golds, tell))
    if not news:
        raise InvalidMessage(
            f"the expected answer cannot be read as mathematics: {golds}",
            fix="leave the row out, or correct its ground_truth",
        )
    return _graded(_REASONS[news[-1:]], correct=news.endswith(_EQUAL))


def _compare(answer: str, golds: list[str], tell: Tell) -> None:
    """Tell how far the comparison came, a byte a step."""
    expected = [_read(gold) for gold in golds]
    if not all(expected):
        return
    tell(_GOLD_PARSED)
    given = _read(answer)
    if not given:
        return
    tell(_ANSWER_PARSED)
    pairs = product(chain.from_iterable(expected), given)
    equal = any(verify(gold, each, timeout_seconds=None) for gold, each in pairs)
    tell(_EQUAL if equal else _DIFFERENT)


def _read(latex: str) -> list[list[Any]]:
    """The readings that can be parsed."""
    return [parsed for reading in readings(latex) if (parsed := _parsed(reading))]


def _parsed(latex: str) -> list[Any]:
    """One expression, if it can be parsed, and its normalised text."""
    box = rf"\boxed{{{latex}}}"
    # Its own time limits are signals, which only a main thread can have, and which bind no C code.
    parsed: list[Any] = parse(
        box, extraction_config=_LATEX, extraction_mode="first_match", parsing_timeout=None
    )
    return parsed


def _golds(ground_truth: GroundTruth) -> list[str]:
    """The expected answers, any of which is right."""
    golds = ground_truth if isinstance(ground_truth, list) else [ground_truth]
    if not golds or not all(isinstance(gold, str | int | float) for gold in golds):
        raise InvalidMessage(
            f"a row of mathematics needs its ground_truth as text, got {ground_truth!r}",
            fix='a row is {"data_source": "math", "problem": "2+2?", "answer": "4"}',
        )
    return [_unboxed(str(gold)) for gold in golds]


def _unboxed(gold: str) -> str:
    within = last_boxed(gold)
    return gold.strip().strip("$") if within is None else within


def _graded(reason: str, *, correct: bool = False, boxed: bool = True) -> Grade:
    components = {"correct": float(correct), "boxed": float(boxed)}
    return Grade(reward=float(correct), components=components, reason=reason)
