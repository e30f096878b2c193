"""A long Result on its way through the orchestrator: our wire format beside JSON lists."""

import json
import random
import time
from array import array
from collections.abc import Callable
from statistics import median

import msgspec

from rollyard import codec
from rollyard.messages import (
    Grade,
    Lease,
    Outcome,
    PackedGroup,
    PackedResult,
    Result,
    Trajectory,
    Turn,
    WeightSpan,
)

REPEATS = 15


class WireCost(msgspec.Struct):
    tokens: int
    bytes: int
    json_bytes: int
    milliseconds: float
    """Time to encode and to decode it, checks included."""
    passing_milliseconds: float
    """Time for the orchestrator to take it and to give it to the trainer, without HTTP and
    Redis."""
    json_milliseconds: float


def measure(tokens: int) -> WireCost:
    result = long_result(tokens)
    trajectory = result.trajectory
    assert trajectory is not None
    lists = {
        "token_ids": trajectory.token_ids.tolist(),
        "loss_mask": trajectory.loss_mask.tolist(),
        "logprobs": trajectory.logprobs.tolist(),
    }
    sent = codec.encode([result])
    ours: list[float] = []
    passing: list[float] = []
    theirs: list[float] = []
    for _ in range(REPEATS):  # one after the other: both meet the same load
        ours.append(_cpu_seconds(lambda: codec.decode(codec.encode(result), Result)))
        passing.append(_cpu_seconds(lambda: _pass_on(sent)))
        theirs.append(_cpu_seconds(lambda: json.loads(json.dumps(lists).encode())))
    return WireCost(
        tokens=tokens,
        bytes=len(codec.encode(result)),
        json_bytes=len(json.dumps(lists).encode()),
        milliseconds=round(median(ours) * 1e3, 4),
        passing_milliseconds=round(median(passing) * 1e3, 4),
        json_milliseconds=round(median(theirs) * 1e3, 4),
    )


def long_result(tokens: int) -> Result:
    """A Result of so many tokens, as a policy with a vocabulary of 151,000 samples them."""
    draw = random.Random(0)
    trajectory = Trajectory(
        token_ids=array("i", (min(150_999, int(draw.paretovariate(0.3))) for _ in range(tokens))),
        loss_mask=array("b", (int(at % 1000 < 600) for at in range(tokens))),
        logprobs=array("f", (-draw.expovariate(2.0) for _ in range(tokens))),
        weight_spans=(WeightSpan(version=1, start=0, end=tokens),),
        turns=(Turn(start=0, end=tokens, finish_reason="stop"),),
        messages=(),
    )
    lease = Lease(job_id="run/group/0", attempt=1, server_id="agent", slot="agent#0")
    return Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=1.0), trajectory=trajectory
    )


def _pass_on(sent: bytes) -> bytes:
    (result,) = codec.decode(sent, list[PackedResult])
    stored = msgspec.Raw(codec.encode(result))
    group = PackedGroup(group_id="group", prompt=msgspec.Raw(codec.encode(None)), results=(stored,))
    return codec.encode(group)


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
