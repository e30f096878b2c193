"""Answers in LaTeX as math-verify reads them rightly.

It adds up numbers that stand beside each other, as in `3 1/2`, and so the groups of digits of a
large one; it takes a blank before an imaginary unit for another expression, and knows neither all
fonts nor a full stop.
"""

import re

_BLANK = r"(?:\\[,;:! ]|~)"
_DIGIT_GROUPS = re.compile(rf"(?<![\d.])\d{{1,3}}(?:(?:{_BLANK}|\{{,\}})\d{{3}})+(?!\d)")
_NO_DIGIT = re.compile(r"\D")
_BEFORE_UNIT = re.compile(rf"(?<=[\d}}])(?:\s|{_BLANK})+(?=i(?![a-zA-Z]))")
_FONT = re.compile(r"\\(?:(?:boldsymbol|bm|pmb)(?=\s*\{)|(?:bf|rm|it)(?![a-zA-Z]))")
_FULL_STOP = re.compile(r"(?<!\.)\.\s*\Z")
_PERCENT = re.compile(r"\\?%\s*\Z")


def readings(latex: str) -> list[str]:
    """What the answer may stand for: public answers leave the percent sign out as often as not."""
    plain = _FULL_STOP.sub("", _FONT.sub("", latex))
    plain = _DIGIT_GROUPS.sub(lambda number: _NO_DIGIT.sub("", number[0]), plain)
    plain = _BEFORE_UNIT.sub("", plain)
    without = _PERCENT.sub("", plain)
    return [plain] if without == plain else [plain, without]
