"""Patches as `git diff --no-renames` writes them, read line by line before anything applies them.

What an agent left is as trustworthy as the agent. Its patch is therefore read strictly: a line that
git would not have written where it stands refuses the whole, so that no program that applies it
finds more in it than was checked here. Changes of files are independent of each other, so that some
can be left out.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

_HEADER = b"diff --git a/"
_QUOTED_HEADER = re.compile(rb'diff --git "a/(.+)" "b/\1"')
_FILE_MODES = (b"100644", b"100755")
_MODE_LINE = re.compile(rb"(?:old mode|new mode|new file mode|deleted file mode) (\d{6})")
_INDEX_LINE = re.compile(rb"index [0-9a-f]{7,64}\.\.[0-9a-f]{7,64}(?: (\d{6}))?")
_BINARY_LINE = re.compile(rb"Binary files .* differ")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class MalformedPatch(Exception):
    """A patch that git did not write; the message says where."""


class FileChange(msgspec.Struct, frozen=True):
    """The change of one file."""

    path: str
    text: bytes
    """Its part of the patch."""
    refused: str = ""
    """Reason why it may never be applied, such as being a symbolic link; empty if it may."""


def read_patch(patch: bytes) -> tuple[FileChange, ...]:
    """The changes in the patch, in order. Raises `MalformedPatch`."""
    if not patch:
        return ()
    if not patch.endswith(b"\n"):
        raise MalformedPatch("its last line is not complete")
    lines = _Lines(patch[:-1].split(b"\n"))
    return tuple(_changes(lines))


def joined(changes: Iterable[FileChange]) -> bytes:
    """The patch with these changes."""
    return b"".join(change.text for change in changes)


class _Lines:
    """The lines of a patch, and the next one to read."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self.position = 0

    def peek(self) -> bytes | None:
        """The next line; None at the end."""
        return self._lines[self.position] if self.position < len(self._lines) else None

    def take(self) -> bytes:
        line = self.peek()
        if line is None:
            raise MalformedPatch("it ends within a change")
        self.position += 1
        return line

    def since(self, start: int) -> bytes:
        return b"".join(line + b"\n" for line in self._lines[start : self.position])

    def unexpected(self) -> MalformedPatch:
        return MalformedPatch(f"line {self.position + 1} is out of place")


def _changes(lines: _Lines) -> Iterator[FileChange]:
    while lines.peek() is not None:
        start = lines.position
        path, quote = _path(lines)
        refused = _read_headers(lines)
        _read_hunks(lines, path, quote)
        reason = _refused_name(path, quote) or refused
        yield FileChange(path.decode(errors="replace"), lines.since(start), reason)


def _path(lines: _Lines) -> tuple[bytes, bytes]:
    """The path that the first line of a change gives twice, and what it is quoted with."""
    line = lines.peek() or b""
    if quoted := _QUOTED_HEADER.fullmatch(line):
        lines.take()
        return quoted[1], b'"'
    names = line.removeprefix(_HEADER)
    path = names[: (len(names) - len(b" b/")) // 2]
    if line == names or names != path + b" b/" + path:
        raise lines.unexpected()
    lines.take()
    return path, b""


def _refused_name(path: bytes, quote: bytes) -> str:
    if quote:
        return "its name has special characters"
    parts = path.split(b"/")
    if any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts):
        return "its path is not one of the repository"
    return ""


def _read_headers(lines: _Lines) -> str:
    """Read what stands before the hunks. Returns the reason why the change is refused, if it is."""
    refused = ""
    while (line := lines.peek()) is not None and not line.startswith((b"--- ", _HEADER)):
        if _BINARY_LINE.fullmatch(line):
            refused = refused or "it is binary"
        elif found := _MODE_LINE.fullmatch(line) or _INDEX_LINE.fullmatch(line):
            if found[1] is not None and found[1] not in _FILE_MODES:
                refused = "it is no regular file"
        else:
            raise lines.unexpected()
        lines.take()
    return refused


def _read_hunks(lines: _Lines, path: bytes, quote: bytes) -> None:
    if not (lines.peek() or b"").startswith(b"--- "):
        return
    for side, root in ((b"--- ", b"a/"), (b"+++ ", b"b/")):
        name = quote + root + path + quote
        # git puts a tab behind a name that has a blank.
        if (lines.peek() or b"").removesuffix(b"\t") not in (side + name, side + b"/dev/null"):
            raise lines.unexpected()
        lines.take()
    while hunk := _HUNK.match(lines.peek() or b""):
        lines.take()
        _read_hunk(lines, *(1 if count is None else int(count) for count in hunk.groups()))


def _read_hunk(lines: _Lines, old: int, new: int) -> None:
    """Read the lines of a hunk that covers `old` lines of the file before and `new` after."""
    while old > 0 or new > 0:
        mark = (lines.peek() or b"?")[:1]
        old -= mark in (b" ", b"-")
        new -= mark in (b" ", b"+")
        if mark not in (b" ", b"-", b"+", b"\\") or old < 0 or new < 0:
            raise lines.unexpected()
        lines.take()
    if (lines.peek() or b"").startswith(b"\\"):  # "\ No newline at end of file"
        lines.take()
