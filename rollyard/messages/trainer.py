"""Who drives a Run."""

from typing import Annotated

import msgspec

from rollyard.messages.base import MOST, Count, Message, Name, check, check_name

Epoch = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
"""Which trainer of a Run, in the order in which they took it over."""
MAX_HOST_CHARACTERS = 255


class Trainer(Message, frozen=True):
    """A process that takes a Run over, with all that an earlier one has requested."""

    trainer_id: Name
    """Made anew each time that a Run is taken over: the same one again changes nothing."""
    host: str
    pid: Count

    def __post_init__(self) -> None:
        check_name(self.trainer_id, "trainer_id")
        length = len(self.host)
        check(
            length <= MAX_HOST_CHARACTERS,
            f"host has {length} characters, more than {MAX_HOST_CHARACTERS}",
        )


class Claim(Message, frozen=True):
    """The answer to a trainer that took a Run over."""

    epoch: Epoch
    """Rises with every trainer of the Run; calls that name a lower one are refused."""


class SignOfLife(Message, frozen=True):
    """The trainer of that epoch lives."""

    epoch: Epoch
    leaving: bool = False
    """It goes: what is parked for it gives its Slots up."""
