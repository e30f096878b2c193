"""Control tokens give a conversation its form, so nobody but the chat template writes them.

What a message says is plain text. Where it spells a control token, as a tool may that prints a
chat log, the text is marked to be encoded in two pieces, of which neither spells the token.
"""

import re
from collections.abc import Iterable

_CUT = "\uffff"
"""Unicode reserves it for use within a program. A message that holds one loses it."""


class ControlTokens:
    """The control tokens of one model, by their texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        # A single character cannot be cut, and a run of blanks gives a conversation no form.
        self._texts = frozenset(text for text in texts if len(text.strip()) > 1)
        self._lengths = sorted({len(text) for text in self._texts})
        firsts = "".join(sorted({text[0] for text in self._texts}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]" if firsts else "(?!)")

    def cut(self, content: str) -> str:
        """`content` with a mark inside every control token that it spells."""
        return self._firsts.sub(self._mark, content.replace(_CUT, ""))

    def _mark(self, first: re.Match[str]) -> str:
        text, start = first.string, first.start()
        spelt = any(text[start : start + length] in self._texts for length in self._lengths)
        return first[0] + _CUT if spelt else first[0]


def pieces(text: str) -> list[str]:
    """What is to be encoded piece by piece, of text with marks."""
    return text.split(_CUT)
