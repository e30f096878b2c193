"""A Batch as NeMo-RL sees it: a message log for each trajectory, with tensors of its tokens.

NeMo-RL finds a Group by its prompt: it compares the tokens of each log's first messages, up to the
log's `length`. So the first message has what all prompts of the Group begin with, and what no other
Group's first message is: the rest of the prompt is a message of its own.

The first message is the prompt of a Group nearly always: others are of trajectories that a chat
template splits, and of prompts that are twice in a Batch.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import groupby, takewhile
from typing import Any

from rollyard.errors import InvalidMessage
from rollyard.trainers.completions import PromptCompletion
from rollyard.trainers.sequences import NOT_SAMPLED

Message = dict[str, Any]
"""`role`, `content`, `token_ids` int64 [N], `weight_versions` int64 [N], and of those that the
policy sampled `generation_logprobs` float32 [N]."""
Decode = Callable[[Sequence[int]], str]


def message_log(completion: PromptCompletion, first: int, decode: Decode) -> list[Message]:
    """Messages of the trajectory, of which the first has `first` tokens."""
    torch: Any = import_module("torch")  # not all environments have its types
    prompt_ids = completion.prompt_ids

    def message(role: str, token_ids: list[int], versions: list[int]) -> Message:
        return {
            "role": role,
            "content": decode(token_ids),
            "token_ids": torch.tensor(token_ids, dtype=torch.int64),
            "weight_versions": torch.tensor(versions, dtype=torch.int64),
        }

    log = [
        message("user", token_ids, [NOT_SAMPLED] * len(token_ids))
        for token_ids in (prompt_ids[:first], prompt_ids[first:])
        if token_ids
    ]
    for begin, end in _runs(completion.mask):
        sampled = completion.mask[begin]
        token_ids = completion.completion_ids[begin:end]
        role = "assistant" if sampled else "environment"
        log.append(message(role, token_ids, completion.weight_versions[begin:end]))
        if sampled:
            logprobs = completion.logprobs[begin:end]
            log[-1]["generation_logprobs"] = torch.tensor(logprobs, dtype=torch.float32)
    return log


def first_lengths(completions: Sequence[PromptCompletion], pad_token_id: int) -> list[int]:
    """Tokens of each trajectory's first message: the same for all of a Group.

    Raises `InvalidMessage` for a Group whose prompts have nothing in common.
    """
    lengths: dict[int, int] = {}
    seen: set[tuple[int, ...]] = set()
    for number, members in groupby(completions, key=lambda each: each.group):
        shared = _shared([each.prompt_ids for each in members])
        while shared and _unpadded(shared, pad_token_id) in seen:
            shared = shared[:-1]
        if not shared:
            raise InvalidMessage(
                f"group {number} of the batch has prompts that begin differently, or as all others",
                fix="let the environment begin with the same message for all of a group",
            )
        seen.add(_unpadded(shared, pad_token_id))
        lengths[number] = len(shared)
    return [lengths[each.group] for each in completions]


def _shared(prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """What all of them begin with."""
    equal = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*prompts, strict=False))
    return tuple(tokens[0] for tokens in equal)


def _unpadded(token_ids: tuple[int, ...], pad_token_id: int) -> tuple[int, ...]:
    """What is left of them to compare once they are padded."""
    length = len(token_ids)
    while length and token_ids[length - 1] == pad_token_id:
        length -= 1
    return token_ids[:length]


def _runs(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of equal values."""
    begin = 0
    for _, equal in groupby(mask):
        end = begin + len(list(equal))
        yield begin, end
        begin = end
