"""Responses while they are sampled: the text that is certain already.

What is told of a response cannot be taken back. So what may still turn out to be something else is
held back: the beginning of a tag, blanks that may be the last, half a character, and all that
stands behind the beginning of a call. At the end the response is read as a whole, and what was told
is its beginning.
"""

from collections.abc import Sequence
from enum import Enum, auto

import msgspec
import structlog

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tool_calls.reasoning import REASONING_TAGS
from agent_server.gateway.exchange import Piece, ToldResponse

log = structlog.get_logger()

_OPENINGS = tuple(opening for opening, _ in REASONING_TAGS)


class _Place(Enum):
    """What the next text of a response belongs to."""

    BEGINNING = auto()
    REASONING = auto()
    CONTENT = auto()
    CALLS = auto()


class _Part:
    """One part of a response, without the blanks around it, as far as it was told."""

    def __init__(self) -> None:
        self.told = ""
        self._blanks = ""

    def tell(self, text: str) -> str:
        """What can be told now that the part goes on with this text."""
        text = self._blanks + text if self.told else text.lstrip()
        certain = text.rstrip()
        self._blanks = text[len(certain) :]
        self.told += certain
        return certain


class Unfolding:
    """One response. It begins in reasoning if its prompt `opened` some; `marks` begin calls."""

    def __init__(self, template: ChatTemplate, marks: Sequence[str], *, opened: bool) -> None:
        self._spelling = template.spelling()
        self._stops = frozenset(template.stop_token_ids)
        self._marks = tuple(marks)
        self._closings = tuple(closing for _, closing in REASONING_TAGS)
        self._opened = opened
        self._place = _Place.BEGINNING
        self._held = ""
        self._reasoning, self._content = _Part(), _Part()

    def hear(self, token_ids: Sequence[int]) -> Piece:
        """What can be told now that these tokens were sampled."""
        self._held += "".join(
            self._spelling(token) for token in token_ids if token not in self._stops
        )
        if self._place is _Place.BEGINNING:
            self._begin()
        reasoning = content = ""
        if self._place is _Place.REASONING:
            reasoning = self._reasoning.tell(self._take(self._closings, _Place.CONTENT))
        if self._place is _Place.CONTENT:
            content = self._content.tell(self._take(self._marks, _Place.CALLS))
        return Piece(reasoning=reasoning, content=content)

    def told(self, response: ToldResponse) -> ToldResponse:
        """The whole response, to which what was told already belongs."""
        reasoning, content = self._reasoning.told, self._content.told
        if response.reasoning.startswith(reasoning) and response.content.startswith(content):
            return response
        log.warning("told_otherwise", told=content[-80:], read=response.content[-80:])
        return msgspec.structs.replace(response, reasoning=reasoning, content=content)

    def _begin(self) -> None:
        text = self._held.lstrip()
        if any(opening.startswith(text) and opening != text for opening in _OPENINGS):
            return  # nothing yet, or half a tag
        for opening, closing in REASONING_TAGS:
            if text.startswith(opening):
                self._place, self._closings = _Place.REASONING, (closing,)
                self._held = text.removeprefix(opening)
                return
        self._place = _Place.REASONING if self._opened else _Place.CONTENT

    def _take(self, ends: Sequence[str], then: _Place) -> str:
        """The text that certainly stands before the first of these ends, behind which the place is
        another one."""
        found = [(at, end) for end in ends if (at := self._held.find(end)) >= 0]
        if found:
            at, end = min(found)
            text, self._held = self._held[:at], self._held[at + len(end) :]
            self._place = then
            return text
        kept = max((_overlap(self._held, end) for end in ends), default=0)
        at = len(self._held) - kept
        text, self._held = self._held[:at], self._held[at:]
        return text


def _overlap(text: str, end: str) -> int:
    """The length of the longest beginning of `end` with which the text ends."""
    lengths = range(min(len(text), len(end) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(end[:length])), 0)
