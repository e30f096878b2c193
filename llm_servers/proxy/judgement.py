"""The judgement on an LLM server, from what was seen of it: pure functions.

- A server that answers, is not paused and has the newest weights of its node is ready.
- One that is paused holds its requests: it is about to get weights. It is behind once others have
  gone on without it for `BEHIND_SECONDS`: its update failed, and its requests belong elsewhere.
- One that is silent is slow, until it was silent for the time that a hung one takes to be told
  from it; while weights are loaded it may be silent for as long as that takes.
- One that answers, but has brought nothing forward for long although requests run, hangs, too.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

BEHIND_SECONDS = 10.0
SETTLING_SECONDS = 2.0
"""Time for all servers to be seen with weights that they got together."""
LOAD_SECONDS = 600.0
"""The longest that a load of weights may silence a server."""


class LLMPatience(msgspec.Struct, frozen=True, kw_only=True):
    """When a slow server counts as one that hangs."""

    silent_seconds: float = 30.0
    """Time without an answer to a question of health."""
    stalled_seconds: float = 120.0
    """Time without a token, with requests under way: the longest prompt must fit into it."""


class LLMStanding(StrEnum):
    READY = "ready"
    PAUSED = "paused"
    """Its generations are frozen, as during a weight update."""
    SLOW = "slow"
    """It has not answered lately."""
    HUNG = "hung"
    GONE = "gone"
    """Nobody listens there."""


class LookAtLLM(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a server showed."""

    at: float
    """Time in monotonic seconds, as all times here."""
    listens: bool = True
    answers: bool = True
    paused: bool = False
    version: int | None = None
    brought: float = 0.0
    """Number that rises with every token; any number while nothing is under way."""
    running: int = 0
    """Requests under way."""


class SeenOfLLM(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a server."""

    standing: LLMStanding = LLMStanding.GONE
    version: int | None = None
    labelled_at: float = 0.0
    """Time since which it has this version."""
    brought: float = 0.0
    answered_at: float = 0.0
    """Time of its last answer."""
    moved_at: float = 0.0
    """Last time at which it brought something forward, or had nothing to do."""
    paused_at: float | None = None
    """Time since which it is paused."""


def judge(before: SeenOfLLM, look: LookAtLLM, patience: LLMPatience) -> SeenOfLLM:
    """What is known of a server after one more look."""
    if not look.listens:
        return SeenOfLLM(answered_at=before.answered_at)
    if not look.answers:
        return msgspec.structs.replace(before, standing=_of_silent(before, look.at, patience))
    moved = look.paused or not look.running or look.brought != before.brought
    moved_at = look.at if moved or before.standing is LLMStanding.GONE else before.moved_at
    standing = LLMStanding.READY
    if look.paused:
        standing = LLMStanding.PAUSED
    elif look.at - moved_at > patience.stalled_seconds:
        standing = LLMStanding.HUNG
    paused_at = before.paused_at if before.paused_at is not None else look.at
    return SeenOfLLM(
        standing=standing,
        version=look.version,
        labelled_at=before.labelled_at if look.version == before.version else look.at,
        brought=look.brought,
        answered_at=look.at,
        moved_at=moved_at,
        paused_at=paused_at if look.paused else None,
    )


def _of_silent(before: SeenOfLLM, now: float, patience: LLMPatience) -> LLMStanding:
    silent = now - before.answered_at
    if before.standing is LLMStanding.PAUSED and silent <= LOAD_SECONDS:
        return LLMStanding.PAUSED
    if before.standing in (LLMStanding.GONE, LLMStanding.HUNG):
        return before.standing
    return LLMStanding.SLOW if silent <= patience.silent_seconds else LLMStanding.HUNG


def rotation(servers: Mapping[str, SeenOfLLM], now: float) -> tuple[str, ...]:
    """The servers that take requests now: those that are ready, else those that hold requests for
    an update, else those that are slow."""
    ready = _at(servers, LLMStanding.READY)
    newest = _newest(servers.values(), now)
    current = tuple(server for server in ready if _is_current(servers[server], newest))
    return current or _at(servers, LLMStanding.PAUSED) or _at(servers, LLMStanding.SLOW) or ready


def gives_up(server: str, servers: Mapping[str, SeenOfLLM], now: float) -> bool:
    """Whether a request under way on this server is lost there, or would wait for too long."""
    seen = servers[server]
    if seen.standing in (LLMStanding.GONE, LLMStanding.HUNG):
        return True
    if seen.standing is not LLMStanding.PAUSED or seen.paused_at is None:
        return False
    others = (each for name, each in servers.items() if name != server)
    went_on = any(
        each.standing is LLMStanding.READY and (each.version or 0) > (seen.version or 0)
        for each in others
    )
    return went_on and now - seen.paused_at > BEHIND_SECONDS


def _at(servers: Mapping[str, SeenOfLLM], standing: LLMStanding) -> tuple[str, ...]:
    return tuple(server for server, seen in servers.items() if seen.standing is standing)


def _is_current(seen: SeenOfLLM, newest: int | None) -> bool:
    return newest is None or (seen.version is not None and seen.version >= newest)


def _newest(servers: Iterable[SeenOfLLM], now: float) -> int | None:
    """The newest version of those that are ready, unless it was put on only now: the others are
    looked at a moment later. None if none has a version."""
    told = [
        seen for seen in servers if seen.standing is LLMStanding.READY and seen.version is not None
    ]
    if not told:
        return None
    settled = [seen for seen in told if now - seen.labelled_at > SETTLING_SECONDS]
    return max((seen.version or 0 for seen in settled), default=_oldest(told))


def _oldest(told: Iterable[SeenOfLLM]) -> int:
    return min(seen.version or 0 for seen in told)
