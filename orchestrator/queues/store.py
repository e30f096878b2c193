"""The store of the queues, and how durable it is, as far as Redis tells its user."""

import time
from typing import Any

import redis

from orchestrator.queues.connection import RedisConnection
from rollyard.errors import QueueUnavailable
from rollyard.messages import Storage


class Store:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def check_answers(self) -> None:
        """Raises `QueueUnavailable` in good time for a person who waits for an answer."""
        self._connection.ping()

    def describe(self) -> Storage:
        started = time.perf_counter()
        seconds, micros = self._connection.do(lambda r: r.time())
        round_trip = time.perf_counter() - started
        server, settings = self._told("server"), self._settings_told()
        memory, version = self._told("memory"), self._connection.key("version")
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

    def _told(self, section: str) -> dict[str, Any]:
        """A section of INFO; empty where the user may not ask."""
        try:
            told: dict[str, Any] = self._connection.do(lambda r: r.info(section))
        except QueueUnavailable as error:
            if isinstance(error.__cause__, redis.exceptions.NoPermissionError):
                return {}
            raise
        return told

    def _settings_told(self) -> dict[str, str]:
        names = ("appendonly", "appendfsync", "maxmemory-policy")
        try:
            told = self._connection.do(lambda r: r.config_get(*names))
        except QueueUnavailable as error:
            if isinstance(error.__cause__, redis.exceptions.NoPermissionError):
                return {}
            raise
        return {_text(name): _text(value) for name, value in told.items()}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
