"""Grades: the worth of a trajectory."""

import math
from typing import SupportsFloat

import msgspec

from rollyard.errors import InvalidMessage
from rollyard.messages.base import Message, check, check_most

MAX_REASON_CHARACTERS = 4000
MAX_SHOWN_CHARACTERS = 100
MAX_NAMED = 64
"""Limit on the components of a grade, and on its metrics."""


class Grade(Message, frozen=True, omit_defaults=True):
    """The worth of one trajectory, and why. Numbers of other libraries become plain ones. Raises
    `InvalidMessage` for what is no finite number."""

    reward: float
    components: dict[str, float] = msgspec.field(default_factory=dict)
    """Parts that the reward was made of, by name."""
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    """Other figures of the trajectory, by name, which are no part of the reward."""
    reason: str = ""
    """One sentence that says what earned or cost the reward."""

    def __post_init__(self) -> None:
        # Environments make grades, with whatever their libraries call a number.
        msgspec.structs.force_setattr(self, "reward", _reward(self.reward))
        for what in ("components", "metrics"):
            msgspec.structs.force_setattr(self, what, _figures(getattr(self, what), what))
        check(
            isinstance(self.reason, str), f"the reason of a grade must be text, got {self.reason!r}"
        )
        check_most(len(self.reason), MAX_REASON_CHARACTERS, "the length of a grade's reason")


def _reward(given: object) -> float:
    number = _number(given)
    check(
        math.isfinite(number),
        f"a grade needs a finite reward, got {_shown(given)}",
        fix="give a number; what cannot be graded is an exception, which is never a reward",
    )
    return number


def _figures(given: object, what: str) -> dict[str, float]:
    """The figures by name, as plain numbers."""
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise InvalidMessage(
            f"the {what} of a grade must be numbers by name, got {_shown(given)}",
            fix='give a dict like {"turns": 3.0}',
        )
    check_most(len(given), MAX_NAMED, f"the number of {what} of a grade")
    numbers = {name: _number(value) for name, value in given.items()}
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise InvalidMessage(
                f"{name!r} of a grade's {what} is {_shown(given[name])}, and no finite number",
                fix="give a number, or leave it out",
            )
    return numbers


def _number(given: object) -> float:
    """The number as a plain float, also that of another library or a bool; NaN for what is none,
    such as text that spells one."""
    if type(given) is float:
        return given
    if not isinstance(given, SupportsFloat):  # a look at each of its methods: ten times the rest
        return math.nan
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # as of a tensor of several
        return math.nan


def _shown(given: object) -> str:
    return repr(given)[:MAX_SHOWN_CHARACTERS]
