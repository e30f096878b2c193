"""What reaches a trainer was checked, and what cannot be trained on names its Job."""

import math
from array import array
from typing import Any

import msgspec
import pytest

from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import (
    Batch,
    Counters,
    Grade,
    Group,
    Lease,
    Outcome,
    PackedBatch,
    Prompt,
    Result,
    Trajectory,
    WeightSpan,
)
from rollyard.unpacking import unpacked

PROMPT = Prompt(prompt_id="p", instance={"data_source": "arithmetic"})


def result(member: int) -> Result:
    trajectory = Trajectory(
        token_ids=array("i", [1, 2]),
        loss_mask=array("b", [0, 1]),
        logprobs=array("f", [0.0, -0.5]),
        weight_spans=(WeightSpan(version=3, start=1, end=2),),
        turns=(),
        messages=(),
    )
    lease = Lease(job_id=f"train/p/{member}", attempt=1, server_id="agent-7", slot="agent-7#0")
    return Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=1.0), trajectory=trajectory
    )


def batch() -> Batch:
    group = Group(group_id="p", prompt=PROMPT, results=(result(0), result(1)))
    return Batch(batch_id="b", run_id="train", groups=(group,), counters=Counters(groups_kept=1))


def with_another_trajectory(**changes: Any) -> PackedBatch:
    """The Batch as it would leave the orchestrator if its last trajectory were another."""
    sent = msgspec.msgpack.decode(codec.encode(batch()))
    sent["groups"][0]["results"][1]["trajectory"] |= changes
    return codec.decode(codec.encode(sent), PackedBatch)


def test_a_batch_is_the_same_after_its_way_through_the_orchestrator() -> None:
    assert unpacked(codec.decode(codec.encode(batch()), PackedBatch)) == batch()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"logprobs": array("f", [0.0, math.nan])}, "NaN or infinite logprobs"),
        ({"logprobs": array("f", [0.0, -math.inf])}, "NaN or infinite logprobs"),
        ({"loss_mask": array("b", [1])}, "differ in length"),
        ({"token_ids": [1, 2]}, "expected an array"),
        ({"turns": [{"start": -1, "end": 2, "finish_reason": "stop"}]}, "turns"),
        ({"messages": "none"}, "messages"),
    ],
)
def test_what_cannot_be_trained_on_names_its_job_and_its_server(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidMessage, match=problem) as refused:
        unpacked(with_another_trajectory(**changes))
    assert "job 'train/p/1', which 'agent-7' ran, cannot be trained on" in str(refused.value)
