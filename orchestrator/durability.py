"""Whether a Redis keeps what it is given: one that does not would lose Runs without a word."""

import structlog

from orchestrator.queues.store import Store
from rollyard.errors import LaunchError, QueueUnavailable
from rollyard.messages import Storage

log = structlog.get_logger()


def check_durable(store: Store, *, volatile_allowed: bool) -> None:
    """Raises `LaunchError` for a Redis that may lose what it answered, unless that is allowed. One
    that is not there yet, or tells nothing of itself, is trusted."""
    try:
        storage = store.describe()
    except QueueUnavailable as error:
        log.warning("redis_not_checked", reason=error.message)
        return
    losses = why_volatile(storage)
    if not losses:
        return
    if not volatile_allowed:
        raise LaunchError(
            f"this Redis may lose runs: {'; '.join(losses)}",
            fix="set appendonly yes and maxmemory-policy noeviction there, or go on at your own "
            "risk with --allow-volatile-redis",
        )
    log.warning("volatile_redis", danger="; ".join(losses))


def why_volatile(storage: Storage) -> list[str]:
    """What of its settings loses data, in words."""
    losses = []
    if storage.eviction not in (None, "noeviction"):
        losses.append(f"it evicts keys when its memory is full ({storage.eviction})")
    if storage.appendonly not in (None, "yes"):
        losses.append("it keeps no append-only file, so that a restart forgets everything")
    return losses
