"""The tokens with which a chat template ends the assistant's turn."""

from collections.abc import Iterable, Mapping

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


def unnamed_ends(
    renderer: Renderer, stop_texts: Iterable[str], special: Mapping[str, int]
) -> dict[str, int]:
    """Special tokens that end the assistant's turn although no file of the model says so.

    A token is one if the template puts it right behind an answer. If a known stop token ends the
    last answer of a conversation, the model was trained to stop there, and another token behind
    earlier answers is how the template writes history.
    """
    stops = frozenset(stop_texts)
    last = _behind_answer(renderer, None, {**special, **dict.fromkeys(stops, -1)})
    if last in stops:
        return {}
    found = (_behind_answer(renderer, said, special) for said in (FROM_USER, FROM_TOOL))
    return {text: special[text] for text in found if text is not None and text not in stops}


def first_end(text: str, ends: Iterable[str]) -> str | None:
    """The first of these tokens in a text; the longest where several begin."""
    found = [(text.index(end), -len(end), end) for end in ends if end and end in text]
    return min(found)[2] if found else None


def _behind_answer(
    renderer: Renderer, observation: ChatMessage | None, tokens: Mapping[str, int]
) -> str | None:
    following = [] if observation is None else [observation]
    try:
        whole = renderer.render(
            [QUESTION, PLAIN_ANSWER, *following], generation_prompt=observation is not None
        )
    except InvalidMessage:
        return None
    behind = whole.partition(ANSWER)[2].partition(OBSERVED)[0].lstrip()
    return next(
        (text for text in sorted(tokens, key=len, reverse=True) if behind.startswith(text)), None
    )
