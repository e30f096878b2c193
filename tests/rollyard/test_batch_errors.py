"""Errors that a trainer gets instead of a Batch."""

from array import array

from rollyard.batch_errors import why_too_new
from rollyard.messages import (
    Batch,
    BatchReport,
    Counters,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    Sequence,
    Trajectory,
    WeightSpan,
)


def sequence(version: int) -> Sequence:
    return Sequence(
        token_ids=array("i", [1, 2]),
        loss_mask=array("b", [0, 1]),
        logprobs=array("f", [0.0, -0.5]),
        weight_spans=(WeightSpan(version=version, start=1, end=2),),
        turns=(),
    )


def batch(*versions: int) -> Batch:
    """A Batch that updates version 5, with one trajectory of a sequence for each version."""
    *earlier, last = map(sequence, versions)
    trajectory = Trajectory(
        token_ids=last.token_ids,
        loss_mask=last.loss_mask,
        logprobs=last.logprobs,
        weight_spans=last.weight_spans,
        turns=(),
        messages=(),
        earlier=tuple(earlier),
    )
    result = Result(
        lease=Lease(job_id="r/p/0", attempt=1, server_id="a", slot="a#0"),
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=1.0),
        trajectory=trajectory,
    )
    prompt = Prompt(prompt_id="p", instance={"data_source": "arithmetic"})
    return Batch(
        batch_id="b",
        run_id="r",
        groups=(Group(group_id="p", prompt=prompt, results=(result,)),),
        counters=Counters(),
        report=BatchReport(weight_version=5),
    )


def test_no_sequence_of_a_trajectory_may_be_newer_than_the_weights_that_its_batch_updates() -> None:
    assert why_too_new(batch(4, 5)) is None
    for versions in ((6,), (6, 5)):
        error = why_too_new(batch(*versions))
        assert error is not None
        assert "that version 6 sampled" in str(error)
