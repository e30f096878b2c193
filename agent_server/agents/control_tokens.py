"""Control tokens, which give a conversation its form: only the chat template writes them.

A message is plain text. Where it spells a control token, as a tool may that prints a chat log, the
text is marked to be encoded in two pieces, neither of which spells the token.
"""

import re
from collections.abc import Iterable
from typing import Any

_CUT = "\uffff"
"""A character that Unicode reserves for use within a program; it is removed from messages."""


class ControlTokens:
    """The control tokens of one model, by their texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        # A single character cannot be cut, and a run of blanks gives a conversation no form.
        self._texts = frozenset(text for text in texts if len(text.strip()) > 1)
        self._lengths = sorted({len(text) for text in self._texts})
        firsts = "".join(sorted({text[0] for text in self._texts}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]" if firsts else "(?!)")

    def cut(self, content: str) -> str:
        """The content with a mark inside every control token that it spells."""
        return self._firsts.sub(self._mark, content.replace(_CUT, ""))

    def cut_within(self, value: Any) -> Any:
        """JSON, with every text in it cut."""
        match value:
            case str():
                return self.cut(value)
            case dict():
                return {self.cut(key): self.cut_within(each) for key, each in value.items()}
            case list():
                return [self.cut_within(each) for each in value]
        return value

    def _mark(self, first: re.Match[str]) -> str:
        text, start = first.string, first.start()
        spelt = any(text[start : start + length] in self._texts for length in self._lengths)
        return first[0] + _CUT if spelt else first[0]


def pieces(text: str) -> list[str]:
    """The pieces of a marked text, each of which is to be encoded by itself."""
    return text.split(_CUT)
