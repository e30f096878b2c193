"""Answers of mathematics are compared by what they mean, whatever the policy wrote."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_server.rewards import bounded
from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import InvalidMessage
from rollyard.messages import Grade


@pytest.fixture(autouse=True)
def short_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "CPU_SECONDS", 1)


def graded(response: str, *, gold: Any = "42") -> Grade:
    # It brings SymPy, which would be a second of each process that collects these tests.
    from agent_server.rewards.math import grade

    return grade(ScoreTask(data_source="math", solution_str=response, ground_truth=gold))


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("42", "42"),
        ("42", "$42$"),
        ("42", r"\boxed{42}"),
        ("0.5", r"\frac{1}{2}"),
        (r"\dfrac{2}{4}", r"\frac12"),
        ("1+x^2", "x^2+1"),
        ("x=3", "3"),
        ("2,1", "1,2"),
        ("1234", "1,234"),
        (r"\text{Evelyn}", "Evelyn"),
        ("(1,2)", "(1,2)"),
        ("2", ["1", "2"]),
        ("12345", r"12\,345"),
        (r"12\;345\;678", "12345678"),
        ("12~345", "12345"),
        (r"\frac{1{,}234}{5}", r"\frac{1234}{5}"),
        ("1 + 2 i", "1+2i"),
        (r"3\,i", "3i"),
        ("42.", "42"),
        (r"\frac12", r"\frac{1}{2}."),
        (r"\boldsymbol{42}", "42"),
        (r"{\bf 42}", "42"),
        (r"12.5\%", "12.5"),
        ("12.5", r"12.5\%"),
        ("0.125", r"12.5\%"),
    ],
)
def test_an_answer_that_means_the_same_is_right(answer: str, gold: Any) -> None:
    assert graded(rf"So it is \boxed{{{answer}}}.", gold=gold) == Grade(
        reward=1.0,
        components={"correct": 1.0, "boxed": 1.0},
        reason="the boxed answer equals the expected one",
    )


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        *(
            ("41", "42"),
            ("(2,1)", "(1,2)"),
            ("1", "1,2"),
            ("A", "B"),
            ("y", "x"),
            ("Eve", "Evelyn"),
        ),
        *(("357", r"12\,345"), ("0", r"1\,000"), (r"12\,345", "357"), (r"40\%", r"50\%")),
    ],
)
def test_an_answer_that_means_something_else_is_wrong(answer: str, gold: str) -> None:
    assert graded(rf"\boxed{{{answer}}}", gold=gold).components == {"correct": 0.0, "boxed": 1.0}


@pytest.mark.parametrize("response", ["", "42", r"\boxed{}", r"\boxed{42", r"\boxed 42", "}{"])
def test_a_response_without_a_box_is_wrong_and_says_so(response: str) -> None:
    told = graded(response)
    assert (told.reward, told.components["boxed"]) == (0.0, 0.0)
    assert told.reason == "the response has no boxed answer"


def test_the_last_box_behind_the_reasoning_is_the_answer() -> None:
    assert graded(r"<think>\boxed{41}</think> \boxed{40}, no: \boxed{42}").reward == 1.0
    assert graded(r"<think>\boxed{42}</think> so be it").reward == 0.0


@pytest.mark.parametrize(
    "answer",
    ["9^{9^{9^{9}}}", "10000000!", "(" * 1500, r"\sqrt{" * 300 + "2" + "}" * 300],
    ids=["tower", "factorial", "parentheses", "roots"],
)
def test_hostile_mathematics_is_a_wrong_answer_within_its_limits(answer: str) -> None:
    assert graded(rf"\boxed{{{answer}}}").reward == 0.0
    assert graded(r"\boxed{42}").reward == 1.0


def test_an_answer_without_end_is_not_compared() -> None:
    from agent_server.rewards.math import MAX_ANSWER_CHARACTERS

    told = graded(r"\boxed{" + "1" * (MAX_ANSWER_CHARACTERS + 1) + "}")
    assert told.reason == "the boxed answer has more than 2000 characters"


@pytest.mark.parametrize("gold", [" ", "$$", [], [None], {"target": "42"}])
def test_a_gold_answer_that_cannot_be_read_is_the_rows_fault(gold: Any) -> None:
    with pytest.raises(InvalidMessage):
        graded(r"\boxed{42}", gold=gold)


@settings(max_examples=20, deadline=None)
@given(st.text(st.sampled_from("\\{}$^_ 42,xfracboxed\n<>|=()"), max_size=40))
def test_whatever_stands_in_the_box_is_graded(answer: str) -> None:
    assert graded(rf"\boxed{{{answer}}}").reward in (0.0, 1.0)
