"""What the queues find out for the sampler: where a Result, a Prompt and a Batch stand in time."""

import hashlib

import msgspec

from rollyard.messages import BatchReport, Prompt, Result, RunSettings, SlotSeconds
from rollyard.messages.run import MAX_JOB_SECONDS

FATES = tuple(SlotSeconds.__struct_fields__)
"""Of the time of Slots."""
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def completed_report(
    report: BatchReport, *, seconds: float, slots: int, idle: float
) -> BatchReport:
    """The sampler's report with what it cannot know: time."""
    return msgspec.structs.replace(
        report,
        seconds=seconds,
        slots=slots,
        slot_seconds=msgspec.structs.replace(report.slot_seconds, idle=idle),
    )


def row_of(prompt: Prompt, settings: RunSettings) -> str:
    """The same for every Prompt made of one dataset row; empty where no history is kept.

    Rows are told apart by their `id`, if they have one, and by all they say if not.
    """
    if not settings.prediction.skip_by_history:
        return ""
    name = prompt.instance.get("id")
    row = [prompt.data_source, name] if isinstance(name, str | int) else prompt.instance
    return hashlib.blake2b(_encoder.encode(row), digest_size=8).hexdigest()


def seconds_on_slot(result: Result) -> float | None:
    """As its agent server measured them; None if it did not, or says what cannot be."""
    timings = result.timings
    total = timings.init_seconds + timings.run_seconds + timings.eval_seconds
    return total if 0 < total <= MAX_JOB_SECONDS else None


def oldest_version(result: Result) -> int | None:
    """The weight version of the oldest token; None if there is none, or nobody has said."""
    spans = result.trajectory.weight_spans if result.trajectory is not None else ()
    return min((span.version for span in spans), default=None)
