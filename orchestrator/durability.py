"""The check that Redis is durable: one that is not would lose Runs without an error."""

import structlog

from orchestrator.queues.store import Store
from rollyard.errors import LaunchError, QueueUnavailable
from rollyard.messages import Storage

log = structlog.get_logger()


def check_durable(store: Store, *, volatile_allowed: bool) -> None:
    """Raise `LaunchError` if Redis may lose answered writes, unless that is allowed. A Redis that
    does not answer yet, or does not tell its settings, is trusted."""
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
    """One clause for each setting by which the store may lose data."""
    losses = []
    if storage.eviction not in (None, "noeviction"):
        losses.append(f"it evicts keys when its memory is full ({storage.eviction})")
    if storage.appendonly not in (None, "yes"):
        losses.append("it keeps no append-only file, so that a restart forgets everything")
    return losses
