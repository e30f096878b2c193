"""Messages that cannot be meant are refused where they are made."""

import math
from array import array
from typing import Any

import numpy
import pytest

from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import (
    AgentServer,
    BatchRequest,
    Grade,
    Lease,
    Limits,
    Outcome,
    Prompt,
    Result,
    RunSettings,
    Sampling,
    Trajectory,
    Turn,
)

LEASE = Lease(job_id="r/g/0", attempt=1, server_id="a", slot="a#0")


def trajectory(**changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "token_ids": array("i", [1, 2]),
        "loss_mask": array("b", [0, 1]),
        "logprobs": array("f", [0.0, -1.0]),
        "weight_spans": (),
        "turns": (Turn(start=1, end=2, finish_reason="stop"),),
        "messages": (),
    }
    return Trajectory(**(values | changes))


def test_a_completed_result_needs_a_finite_reward_and_a_trajectory() -> None:
    for reward in (math.nan, math.inf):
        with pytest.raises(InvalidMessage, match="finite reward"):
            Grade(reward=reward)
    with pytest.raises(InvalidMessage, match="needs its grade"):
        Result(lease=LEASE, outcome=Outcome.COMPLETED, trajectory=trajectory())
    with pytest.raises(InvalidMessage, match="needs its trajectory"):
        Result(lease=LEASE, outcome=Outcome.COMPLETED, grade=Grade(reward=1.0))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"reward": "1"}, "a grade needs a finite reward, got '1'; give a number"),
        ({"reward": None}, "a grade needs a finite reward, got None"),
        ({"reward": 10**400}, "a grade needs a finite reward, got 1000"),
        (
            {"metrics": {"turns": [3]}},
            r"'turns' of a grade's metrics is \[3\], and no finite number",
        ),
        ({"components": {"correct": math.nan}}, "'correct' of a grade's components is nan"),
        ({"components": [1.0]}, r"the components of a grade must be numbers by name, got \[1.0\]"),
        ({"metrics": {1: 1.0}}, "the metrics of a grade must be numbers by name"),
        ({"reason": None}, "the reason of a grade must be text, got None"),
    ],
)
def test_a_grade_of_what_is_no_number_is_refused_by_the_name_of_its_field(
    given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        Grade(**({"reward": 1.0} | given))


def test_numbers_of_other_libraries_become_plain_ones_in_a_grade() -> None:
    metrics: dict[str, Any] = {"turns": numpy.float32(0.5), "tries": numpy.int64(3)}
    grade = Grade(reward=True, metrics=metrics)
    assert codec.decode(codec.encode(grade), Grade) == Grade(
        reward=1.0, metrics={"turns": 0.5, "tries": 3.0}
    )
    assert type(grade.reward) is float


@pytest.mark.parametrize("outcome", [Outcome.INFRA_FAILED, Outcome.CANCELLED])
def test_what_the_policy_did_not_finish_has_no_reward(outcome: Outcome) -> None:
    with pytest.raises(InvalidMessage, match="must not carry a grade"):
        Result(lease=LEASE, outcome=outcome, grade=Grade(reward=0.0))


def test_a_trajectory_has_one_entry_a_token_everywhere() -> None:
    with pytest.raises(InvalidMessage, match="differ in length"):
        trajectory(loss_mask=array("b", [1]))
    with pytest.raises(InvalidMessage, match="NaN or infinite logprobs"):
        trajectory(logprobs=array("f", [0.0, math.nan]))


def test_the_sequences_of_a_trajectory_are_the_earlier_ones_and_itself() -> None:
    first, whole = trajectory(), trajectory(turns=())
    assert whole.sequences == (whole,)
    split = trajectory(earlier=(first,))
    assert split.sequences == (first, split)


def test_the_prompt_ends_where_the_first_turn_begins() -> None:
    assert trajectory().prompt_length == 1
    assert trajectory(turns=()).prompt_length == 2


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Sampling(temperature=-1), "temperature must be"),
        (lambda: Sampling(top_p=0), "top_p must be"),
        (lambda: Sampling(max_response_tokens=0), "max_response_tokens must be"),
        (lambda: Limits(max_turns=0), "max_turns must be"),
        (lambda: Limits(max_tokens=1), "max_tokens must be"),
        (lambda: Limits(job_seconds=0), "job_seconds must be"),
        (lambda: Limits(parked_seconds=0), "parked_seconds must be"),
        (lambda: Limits(parked_seconds=math.inf), "parked_seconds must be at most"),
        (
            lambda: AgentServer(server_id="a", url="http://a", slots=0, environments=()),
            "slots must be",
        ),
        (
            lambda: AgentServer(server_id="a", url="http://a", slots=10**9, environments=()),
            "slots and jobs ahead must be at most",
        ),
        (lambda: RunSettings(run_id="r", group_size=10**9), "group_size must be at most"),
        (lambda: Limits(job_seconds=math.inf), "job_seconds must be at most"),
        (lambda: Lease(job_id="", attempt=1, server_id="a", slot="a#0"), "names no run"),
        (lambda: Lease(job_id="/g/0", attempt=1, server_id="a", slot="a#0"), "names no run"),
        (lambda: BatchRequest(batch_id="b/c", requested_batch_size=1), "not a valid name"),
        (lambda: Prompt(prompt_id="p", instance={}), "no 'data_source'"),
        (lambda: Prompt(prompt_id="p", instance={"data_source": 3}), "no 'data_source'"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        make()
