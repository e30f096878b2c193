from array import array
from pathlib import Path

import pytest

from rollyard.errors import InvalidMessage
from rollyard.messages import (
    Batch,
    Counters,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    Sequence,
    Timings,
    Trajectory,
    Turn,
)
from simulator.dataset import Try
from simulator.plan import Plan
from simulator.policies import policy
from simulator.trace import Recorded, Trace, read_trace, recorded, write_trace
from simulator.training import simulate

TRAJECTORIES = [
    Recorded(row="easy", member=0, reward=1.0, seconds=2.0, turns=3),
    Recorded(row="easy", member=1, reward=0.0, seconds=5.0, turns=9),
    Recorded(row="hard", member=0, reward=0.0, seconds=9.0),
]


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", TRAJECTORIES)
    assert read_trace(tmp_path / "trace.jsonl") == TRAJECTORIES


def test_a_member_is_drawn_from_the_recorded_ones_of_its_row() -> None:
    trace = Trace(TRAJECTORIES, seed=1)
    assert trace.rows == 2
    drawn = {trace.draw(Try(0, 0, member, 0), 0).seconds for member in range(50)}
    assert drawn == {2.0, 5.0}
    assert trace.draw(Try(1, 0, 0, 0), 0) == (0.0, 9.0)


def test_a_trace_can_be_simulated() -> None:
    plan = Plan(slots=4, requested_batch_size=2, steps=4, warm_up=1)
    outcome = simulate(Trace(TRAJECTORIES, seed=1), policy("resume", group_size=4), plan)
    assert set(outcome.lengths) <= {2.0, 5.0}


NO_TOKENS = Sequence(
    token_ids=array("i"),
    loss_mask=array("b"),
    logprobs=array("f"),
    weight_spans=(),
    turns=(Turn(start=0, end=0, finish_reason="stop"),),
)


def test_a_batch_can_be_recorded() -> None:
    result = Result(
        lease=Lease(job_id="r/p/0", attempt=1, server_id="s", slot="s/0"),
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=0.5),
        trajectory=Trajectory(
            token_ids=array("i"),
            loss_mask=array("b"),
            logprobs=array("f"),
            weight_spans=(),
            turns=NO_TOKENS.turns,
            messages=(),
            earlier=(NO_TOKENS,),
        ),
        timings=Timings(init_seconds=1.0, run_seconds=2.0, eval_seconds=0.5),
    )
    prompt = Prompt(prompt_id="p", instance={"data_source": "d", "id": 12})
    group = Group(group_id="p", prompt=prompt, results=(result,))
    batch = Batch(batch_id="b", run_id="r", groups=(group,), counters=Counters())
    assert recorded(batch) == [Recorded(row="12", member=0, reward=0.5, seconds=3.5, turns=2)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot read"),
        (b"", "is empty"),
        (b'{"row": "a", "reward": 1, "seconds": 2}\n{"row": "b"}\n', "line 2"),
        (b'{"row": "a", "reward": 1, "seconds": 0}\n', "seconds must be positive"),
        (b"\xff\n", "line 1"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidMessage, match=problem) as refused:
        read_trace(path)
    assert refused.value.fix
