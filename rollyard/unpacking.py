"""Unpacking of Batches: each trajectory, which crossed the orchestrator packed, is checked once."""

import msgspec

from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Group, PackedBatch, PackedGroup, PackedResult, Prompt, Result


def unpacked(batch: PackedBatch) -> Batch:
    """The Batch for the trainer. Raises `InvalidMessage`, which names the first Job whose Result
    cannot be trained on."""
    return Batch(
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        groups=tuple(map(unpacked_group, batch.groups)),
        counters=batch.counters,
        report=batch.report,
    )


def unpacked_group(group: PackedGroup) -> Group:
    return Group(
        group_id=group.group_id,
        prompt=codec.decode(group.prompt, Prompt),
        results=tuple(map(_result, group.results)),
    )


def _result(packed: msgspec.Raw) -> Result:
    try:
        return codec.decode(packed, Result)
    except InvalidMessage as error:
        # The orchestrator has read this much of it.
        lease = codec.decode(packed, PackedResult).lease
        raise InvalidMessage(
            f"job {lease.job_id!r}, which {lease.server_id!r} ran, cannot be trained on: {error}",
            fix=f"`rollyard drain {lease.server_id}`: it reports what no agent server should; then "
            "finish the run, and go on from your last checkpoint in a new one",
        ) from error
