"""Errors that a trainer gets instead of a Batch."""

from collections.abc import Iterator

from rollyard.errors import Conflict, PromptsExhausted, RunFailing, WeightMismatch
from rollyard.messages import Batch, RunStatus


def why_in_vain(status: RunStatus, batch_id: str, *, exhausted: bool) -> Exception | None:
    """The error if the Batch cannot become complete, given whether the dataloader is `exhausted`;
    None if it may."""
    if batch_id not in status.batches:
        return Conflict(
            f"the batch that run {status.run_id!r} waited for is gone: {status.waiting_for}",
            fix="only one trainer at a time may drive a run; did another finish it?",
        )
    if status.failing:
        return RunFailing(
            f"run {status.run_id!r} asks for no more of the dataset: {status.failing.sentence}",
            fix="correct the rows, or what runs them (`rollyard dead` lists each attempt); then "
            "call rollout again: it goes on with the next rows",
        )
    if exhausted and status.idle:
        filtered = status.counters.groups_filtered
        return PromptsExhausted(
            f"the dataloader ended with {status.effective_groups} of "
            f"{status.requested_batch_size} effective groups; {filtered} groups of this run taught "
            "nothing by its criterion",
            fix="if rewards are as they should be (`rollyard why RUN` gives their mean), pass an "
            "endless dataloader (cycle it), or request fewer groups",
        )
    return None


def forgotten(run_id: str, batch_id: str) -> Conflict:
    """The error for an acknowledgement that Redis has lost."""
    return Conflict(
        f"run {run_id!r} has forgotten that batch {batch_id!r} was acknowledged, and would deliver "
        "again what was trained on: its Redis lost what it had not written to disk",
        fix="go on with a new run_id, and with a Redis whose appendfsync is always",
    )


def why_too_new(batch: Batch) -> WeightMismatch | None:
    """The error if a token of the Batch is of newer weights than those that the Batch updates."""
    updates = batch.report.weight_version
    newest = max(_versions(batch), default=updates)
    if newest <= updates:
        return None
    return WeightMismatch(
        f"batch {batch.batch_id!r} was requested to update weight version {updates}, and has "
        f"tokens that version {newest} sampled",
        fix="publish weights before the ack, one version higher for each batch, so that a batch's "
        "age is true; the next rollout returns this one as it is",
    )


def _versions(batch: Batch) -> Iterator[int]:
    """The weight versions that sampled the Batch's tokens, with repetitions."""
    for group in batch.groups:
        for result in group.results:
            if result.trajectory is not None:
                for sequence in result.trajectory.sequences:
                    yield from (span.version for span in sequence.weight_spans)
