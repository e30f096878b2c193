"""What a launcher tells of the parts of its deployment, in a file beside the deployment's tokens.

- It is there while the launcher runs, also while the orchestrator is away.
- It is replaced as a whole, so that a reader never sees half of it.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from launch.output import Listing
from launch.restarts import PartState
from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import Message
from rollyard.tokens import token_file_for

PARTS = "parts.json"


class PartStatus(Message, frozen=True, kw_only=True):
    """One process of a deployment."""

    name: str
    state: PartState
    pid: int = 0
    """Its process, which leads a group of its own; 0 while there is none."""
    restarts: int = 0
    reason: str = ""
    """How it last ended; empty if it never did."""
    died_at: float = 0.0
    """When, in unix seconds."""
    log: str = ""


class PartList(Message, frozen=True):
    """All processes that a launcher keeps running."""

    parts: tuple[PartStatus, ...] = ()


def write_parts(directory: Path, parts: Sequence[PartStatus]) -> None:
    beside = directory / f"{PARTS}.new"
    beside.write_bytes(codec.encode_json(PartList(tuple(parts))))
    beside.replace(directory / PARTS)


def read_parts(directory: Path) -> tuple[PartStatus, ...]:
    """The parts of the deployment in `directory`; none if no launcher tells of any."""
    with contextlib.suppress(OSError, InvalidMessage):
        return codec.decode_json((directory / PARTS).read_bytes(), PartList).parts
    return ()


def parts_behind(url: str, token_file: Path | None) -> tuple[PartStatus, ...]:
    """The parts of the deployment whose orchestrator is at `url`, if it was started on this machine
    or its `token_file` is where the launcher left it."""
    found = token_file_for(url, token_file)
    return () if found is None else read_parts(found.parent)


def parts_listing(parts: Sequence[PartStatus]) -> Listing:
    """The parts that ever died."""
    shown = Listing("part", "is", "restarts", "last ended because", "log", title="Restarts")
    for part in parts:
        if part.reason:
            state = part.state.replace("_", " ")
            shown.add(part.name, state, str(part.restarts), f"it {part.reason}", part.log)
    return shown


def what_is_amiss(parts: Sequence[PartStatus]) -> str:
    """What the launcher says of those parts that are not ready; empty if it says nothing."""
    return "; ".join(
        f"its launcher says that {part.name} is {part.state.replace('_', ' ')}, since it "
        f"{part.reason}"
        for part in parts
        if part.state is not PartState.READY
    )
