"""A reader of texts that policies wrote, from their beginning to their end, once."""

import json
import re
from typing import Any

from agent_server.tools.protocol import ToolError


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


# Not strict: policies write line breaks in the middle of strings, above all in code.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_number)


class Scanner:
    """A text, and the position up to which it was read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    @property
    def done(self) -> bool:
        """True if nothing but blanks is left."""
        self._skip_blanks()
        return self.position == len(self.text)

    def before(self, mark: str) -> str | None:
        """Read up to the next `mark` and behind it. Returns the text before it, or None if there is
        no mark, in which case nothing is read."""
        start, found = self.position, self.text.find(mark, self.position)
        if found < 0:
            return None
        self.position = found + len(mark)
        return self.text[start:found]

    def until(self, mark: str) -> str:
        """The text before the next `mark`, which is read too. Raises `ToolError`."""
        if (text := self.before(mark)) is None:
            raise ToolError(f"the tool call lacks {mark!r}")
        return text

    def skips(self, mark: str) -> bool:
        """Skip blanks and `mark`. Returns whether it was there."""
        self._skip_blanks()
        if not self.text.startswith(mark, self.position):
            return False
        self.position += len(mark)
        return True

    def expect(self, mark: str) -> None:
        """Skip blanks and `mark`. Raises `ToolError` if it is not there."""
        if not self.skips(mark):
            raise ToolError(f"the tool call lacks {mark!r}")

    def sees(self, mark: str) -> bool:
        """Skip blanks. Returns whether `mark` is next."""
        self._skip_blanks()
        return self.text.startswith(mark, self.position)

    def json(self) -> Any:
        """The JSON value that stands next. Raises `ToolError`."""
        self._skip_blanks()
        try:
            value, self.position = _DECODER.raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            offset = error.pos - self.position
            raise ToolError(
                f"the tool call is not JSON: {error.msg} (character {offset})"
            ) from error
        except (ValueError, RecursionError) as error:  # a number or a depth beyond Python's limits
            raise ToolError(f"the tool call is not JSON: {error}") from error
        return value

    def take(self, pattern: re.Pattern[str]) -> str:
        """The text that matches next, which is read; empty if none does."""
        found = pattern.match(self.text, self.position)
        if found is None:
            return ""
        self.position = found.end()
        return found[0]

    def skip_to(self, mark: str) -> None:
        """Skip all that stands before the next `mark`, or all that is left."""
        found = self.text.find(mark, self.position)
        self.position = len(self.text) if found < 0 else found

    def skip_past(self, mark: str) -> None:
        """Skip the next `mark` and all that stands before it, or all that is left."""
        if self.before(mark) is None:
            self.position = len(self.text)

    def rest(self) -> str:
        """All that is left."""
        start, self.position = self.position, len(self.text)
        return self.text[start:]

    def _skip_blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
