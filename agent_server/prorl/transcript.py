"""Trajectories as the messages of ProRL's contract, each with its tokens.

- The tokens of all messages, one after the other, are the trajectory's last sequence.
- The prompt of an assistant's message is the tokens of all messages before it.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agent_server.prorl.messages import MessageTold, SequenceTold
from rollyard.messages import ChatMessage, ToolCall, Trajectory

_NOTHING_SAID = ChatMessage(role="user", content="")
"""Carries the tokens that a chat template puts between two responses with no message between."""


def messages_told(trajectory: Trajectory) -> tuple[MessageTold, ...]:
    return tuple(_told(trajectory))


def earlier_told(trajectory: Trajectory) -> tuple[SequenceTold, ...]:
    return tuple(
        SequenceTold(each.token_ids.tolist(), each.loss_mask.tolist(), each.logprobs.tolist())
        for each in trajectory.earlier
    )


def _told(trajectory: Trajectory) -> Iterator[MessageTold]:
    tokens, messages, turns = trajectory.token_ids, trajectory.messages, trajectory.turns
    given_from, told_to = 0, 0
    for turn, place in zip(turns, _sampled(messages, len(turns)), strict=True):
        given = messages[told_to:place] or (_NOTHING_SAID,)
        yield from _given(given, tokens[given_from : turn.start].tolist())
        yield _message(
            messages[place],
            tokens[turn.start : turn.end].tolist(),
            tokens[: turn.start].tolist(),
            trajectory.logprobs[turn.start : turn.end].tolist(),
        )
        given_from, told_to = turn.end, place + 1
    if rest := tokens[given_from:].tolist():
        yield from _given(messages[told_to:] or (_NOTHING_SAID,), rest)


def _sampled(messages: Sequence[ChatMessage], turns: int) -> list[int]:
    """The places of the last messages that an assistant wrote: one for each Turn. Those before them
    are the environment's examples, or of earlier sequences."""
    written = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return written[len(written) - turns :]


def _given(messages: Sequence[ChatMessage], token_ids: list[int]) -> Iterator[MessageTold]:
    """Messages that were not sampled: the template forms them together."""
    *others, last = messages
    for message in others:
        yield _message(message, [])
    yield _message(last, token_ids)


def _message(
    message: ChatMessage,
    token_ids: list[int],
    input_ids: list[int] | None = None,
    logprobs: list[float] | None = None,
) -> MessageTold:
    return MessageTold(
        role=message.role,
        content=message.content,
        tool_calls=tuple(map(_function, message.tool_calls)),
        tool_call_id=message.tool_call_id or None,
        token_ids=token_ids,
        input_ids=input_ids,
        logprobs=logprobs,
    )


def _function(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}
