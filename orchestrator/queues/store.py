"""The durability of the store behind the queues, as far as Redis tells its user."""

import time
from collections.abc import Callable
from typing import Any

import redis

from orchestrator.queues.connection import RedisConnection
from rollyard.errors import QueueUnavailable
from rollyard.messages import Storage


class Store:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def check_answers(self) -> None:
        """Raise `QueueUnavailable`, soon enough for a person who waits, unless Redis answers."""
        self._connection.ping()

    def describe(self) -> Storage:
        started = time.perf_counter()
        seconds, micros = self._connection.do(lambda r: r.time())
        round_trip = time.perf_counter() - started
        version = self._connection.key("version")
        server, memory = (
            self._told(lambda r: r.info("server")),
            self._told(lambda r: r.info("memory")),
        )
        settings = self._told(
            lambda r: r.config_get("appendonly", "appendfsync", "maxmemory-policy")
        )
        return Storage(
            kind="redis",
            version=str(server.get("valkey_version") or server.get("redis_version", "")),
            state_version=int(self._connection.do(lambda r: r.get(version)) or 0),
            at=seconds + micros / 1e6,
            round_trip_seconds=round_trip,
            appendonly=settings.get("appendonly"),
            appendfsync=settings.get("appendfsync"),
            eviction=settings.get("maxmemory-policy"),
            used_bytes=memory.get("used_memory"),
            max_bytes=memory.get("maxmemory"),
        )

    def _told(self, ask: Callable[["redis.Redis"], Any]) -> dict[str, Any]:
        """Properties that Redis tells of itself; empty if the user may not ask."""
        try:
            told: dict[str, Any] = self._connection.do(ask)
        except QueueUnavailable as error:
            if isinstance(error.__cause__, redis.exceptions.NoPermissionError):
                return {}
            raise
        return told
