"""Templates that write the past anew when a later message comes, as told from what they render."""

from collections.abc import Sequence
from enum import Enum, auto

import msgspec

from agent_server.agents.message_form import Renderer
from agent_server.agents.stand_ins import ANSWER, OBSERVED, QUESTION, REASONING, answers
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolSchema

_BEGIN_AND_END = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)


REASONING_MARKS = frozenset(mark for both in _BEGIN_AND_END for mark in both)
"""Texts between which models reason. Templates look for them in what was sampled."""


class Rewriting(Enum):
    """What an observation changes in the conversation before it."""

    NOTHING = auto()
    REASONING = auto()
    """Earlier reasoning is left out."""
    HISTORY = auto()
    """More than that: the tools are told of elsewhere, or answers are shortened."""


def rewriting(
    renderer: Renderer, observation: ChatMessage, tools: Sequence[ToolSchema]
) -> Rewriting:
    """What an observation of this role rewrites. Raises `InvalidMessage`."""
    answer = next(iter(answers(renderer.form, [observation])))
    once = renderer.render([QUESTION, answer, observation], tools)
    # Templates may find the last message by its content, so that two alike would both be last.
    later = msgspec.structs.replace(observation, content=f"{OBSERVED}, again")
    twice = renderer.render([QUESTION, answer, observation, answer, later], tools)
    kept = once.partition(OBSERVED)[0] + OBSERVED  # a generation prompt need not stay behind it
    if not twice.startswith(kept):
        return Rewriting.HISTORY
    said_as_user = observation.role == "user" or renderer.form.tool_role == "user"
    if said_as_user and _drops_reasoning(renderer, observation, tools):
        return Rewriting.REASONING
    return Rewriting.NOTHING


def _drops_reasoning(
    renderer: Renderer, observation: ChatMessage, tools: Sequence[ToolSchema]
) -> bool:
    return any(
        _drops(renderer, observation, tools, f"{begin}\n{REASONING}\n{end}\n\n{ANSWER}")
        for begin, end in _BEGIN_AND_END
    )


def _drops(
    renderer: Renderer, observation: ChatMessage, tools: Sequence[ToolSchema], said: str
) -> bool:
    answer = ChatMessage(role="assistant", content=said)
    try:
        whole = renderer.render([QUESTION, answer, observation], tools)
    except InvalidMessage:
        return False
    return ANSWER in whole and REASONING not in whole
