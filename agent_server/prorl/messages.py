"""The messages of ProRL's public contract. Unknown fields of a request are ignored, as there."""

from typing import Any

import msgspec

from rollyard.messages import check
from rollyard.messages.run import MAX_NESTED, nested_deeper

MAX_JOB_ID_CHARACTERS = 256


class DoorAnswer(msgspec.Struct, frozen=True):
    status: str


class DoorStopped(msgspec.Struct, frozen=True):
    """What ended with the door."""

    status: str
    ended: tuple[str, ...]
    """Ids of the jobs that were stopped, and have left nothing."""
    ending: tuple[str, ...] = ()
    """Ids of those that ignore their end so far."""


class DoorStatus(msgspec.Struct, frozen=True):
    """What the door does now, in numbers of jobs."""

    status: str
    pending_jobs: int
    """Jobs that wait for a slot."""
    running: int
    jobs: int
    """All of them."""
    init: int
    run: int
    eval: int


class LLMAddress(msgspec.Struct, frozen=True):
    address: str


class JobToCancel(msgspec.Struct, frozen=True):
    job_id: str


class ProcessRequest(msgspec.Struct, frozen=True):
    """One trajectory to produce."""

    instance: dict[str, Any]
    """A row of a dataset."""
    sampling_params: dict[str, Any]
    job_id: str | None = None
    """The caller's name for it, unique among those that are not answered."""

    def __post_init__(self) -> None:
        check(
            not nested_deeper(self.instance, MAX_NESTED),
            f"the instance is nested more than {MAX_NESTED} deep",
        )
        check(
            self.job_id is None or 0 < len(self.job_id) <= MAX_JOB_ID_CHARACTERS,
            f"a job_id has 1 to {MAX_JOB_ID_CHARACTERS} characters",
        )


class MessageTold(msgspec.Struct, frozen=True):
    """One message of the conversation, with its tokens.

    The tokens of all messages, one after the other, are exactly what the model saw and sampled.
    """

    role: str
    content: str
    tool_calls: tuple[dict[str, Any], ...]
    tool_call_id: str | None
    token_ids: list[int]
    """Of an assistant's message those that were sampled; of messages in front of it what the chat
    template makes of them together, with the last one."""
    input_ids: list[int] | None = None
    """The whole prompt that was answered; null where nothing was sampled."""
    logprobs: list[float] | None = None
    """Of each sampled token; null where nothing was sampled."""


class SequenceTold(msgspec.Struct, frozen=True):
    """A sequence that the chat template did not go on with, as it wrote the past anew."""

    token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]


class ProcessTiming(msgspec.Struct, frozen=True):
    """Where the time of one call went, in seconds."""

    init_time: float
    run_time: float
    eval_time: float
    others_time: float
    """Waits, which no limit counts."""
    counted_elapsed: float
    timeout_triggered: bool


class ProcessAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended. Without `critical_error` its score counts."""

    job_id: str
    instance_id: str
    trajectory_id: Any
    messages: tuple[MessageTold, ...]
    tools: tuple[dict[str, Any], ...]
    end_properly: bool
    """True if the policy ended the trajectory, not a limit."""
    success: bool
    error: str | None
    finish: bool
    resolved: bool
    critical_error: str | None
    """The stage that failed, or `timeout`."""
    traceback: str | None = None
    """Where it was raised, without directories and source text; null where nothing was."""
    filter: bool
    """True if nothing can be learned from it."""
    git_patch: str | None = None
    """What was changed in the row's repository; null if nothing was looked for."""
    timing: ProcessTiming
    score: float | None
    """The reward; null, which is no reward, if the infrastructure failed."""
    earlier: tuple[SequenceTold, ...] = ()
    """Sequences before the one that the messages have the tokens of, where there are several."""
