"""Trainers, and the one of them that drives a Run."""

from typing import Annotated

import msgspec

from rollyard.messages.base import MOST, Count, Message, Name, check_most, check_name

Epoch = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
"""Number of a Run's trainer, in the order in which trainers took the Run over."""
MAX_HOST_CHARACTERS = 255


class Trainer(Message, frozen=True):
    """A process that takes a Run over, with all that an earlier trainer has requested."""

    trainer_id: Name
    """Unique to each takeover, so that a repeated claim changes nothing."""
    host: str
    pid: Count

    def __post_init__(self) -> None:
        check_name(self.trainer_id, "trainer_id")
        check_most(len(self.host), MAX_HOST_CHARACTERS, "length of host")


class Claim(Message, frozen=True):
    """The answer to a trainer that took a Run over."""

    epoch: Epoch
    """Epoch of this trainer. Calls that name a lower one are refused from now on."""


class SignOfLife(Message, frozen=True):
    """Proof that the trainer of that epoch is alive."""

    epoch: Epoch
    leaving: bool = False
    """True if the trainer exits: its parked Jobs give up their Slots at once."""
