"""The tokens with which a chat template ends the assistant's turn."""

from collections.abc import Iterable, Mapping

import msgspec

from agent_server.agents.message_form import Renderer
from agent_server.agents.stand_ins import (
    ANSWER,
    FROM_TOOL,
    FROM_USER,
    OBSERVED,
    PLAIN_ANSWER,
    QUESTION,
)
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage


class TurnEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by their texts."""

    stops: Mapping[str, int]
    """Tokens that end a response."""
    unnamed: tuple[str, ...]
    """Those of the stops that no file of the model names."""
    in_history: Mapping[str, int]
    """Tokens that end the assistant's turn in a conversation that goes on: the stops, and what the
    template puts in their place."""


def find_turn_ends(
    renderer: Renderer, named: Mapping[str, int], special: Mapping[str, int]
) -> TurnEnds:
    """The ends of turns, given the stop tokens that the model's files name.

    A special token that the template puts right behind an answer ends a response, too, unless the
    template shows that the model was trained to stop at a named one.
    """
    behind = (_behind_answer(renderer, said) for said in (FROM_USER, FROM_TOOL))
    others = {
        end: special[end]
        for text in behind
        if first_end(text, named) is None and (end := _leading(text, special)) is not None
    }
    last = _leading(_behind_answer(renderer, None), {**named, **special})
    unnamed = others if last is None or last not in named else {}
    return TurnEnds(
        stops={**named, **unnamed}, unnamed=tuple(unnamed), in_history={**named, **others}
    )


def first_end(text: str, ends: Iterable[str]) -> str | None:
    """The first of these tokens in a text; the longest where several begin."""
    found = [(text.index(end), -len(end), end) for end in ends if end in text]
    return min(found)[2] if found else None


def _leading(text: str, tokens: Iterable[str]) -> str | None:
    """The token with which a text begins, but for blanks."""
    return max(
        (token for token in tokens if text.lstrip().startswith(token)), key=len, default=None
    )


def _behind_answer(renderer: Renderer, observation: ChatMessage | None) -> str:
    """The text between an answer and the observation, or the end of the conversation."""
    following = [] if observation is None else [observation]
    try:
        whole = renderer.render(
            [QUESTION, PLAIN_ANSWER, *following], generation_prompt=observation is not None
        )
    except InvalidMessage:
        return ""
    return whole.partition(ANSWER)[2].partition(OBSERVED)[0]
