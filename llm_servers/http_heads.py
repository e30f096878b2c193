"""The heads of HTTP messages, whichever side they come from.

What two readers could take for two things is refused, as a field that is folded or that stands
behind a blank: of a request that is misread, the rest would be the next one.
"""

import re
from collections.abc import Iterable

MAX_LINE_BYTES = 2**16
MAX_FIELDS = 100

Fields = dict[str, str]
"""The fields of a head by their names, which are in small letters; those of one name are one field,
with a comma between them."""

_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")


class BadHead(ValueError):
    """A head that cannot be read."""


class HeadTooLarge(BadHead):
    """A head that is larger than anybody needs."""


def read_fields(lines: Iterable[bytes]) -> Fields:
    """The fields of a head, given its lines without their ends, one for each. Raises `BadHead`."""
    fields: Fields = {}
    for number, line in enumerate(lines, 1):
        if number > MAX_FIELDS or len(line) > MAX_LINE_BYTES:
            raise HeadTooLarge(
                f"a head of more than {MAX_FIELDS} fields, or of more than {MAX_LINE_BYTES} bytes "
                "in one of them"
            )
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadHead(f"no field of a head: {line[:80]!r}")
        name, value = field[1].decode("ascii").lower(), field[2].decode("latin-1")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields
