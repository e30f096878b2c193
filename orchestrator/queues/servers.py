"""The agent servers and the server-availability queue, on which their free Slots stand.

- A server on which `after_failures` different Jobs fail in a row is quarantined, unless half of the
  servers are; so is one that `MAX_UNREACHED` deliveries in a row did not reach, though its
  heartbeats arrive: none of its Slots is offered, then one (probation), and after a success all.
- A draining server gets nothing more; its next heartbeat without work is told to leave.
"""

from collections import Counter
from typing import Any

import msgspec
from redis.client import Pipeline

from orchestrator.kinds import stored_abilities
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.limits import MAX_REASON_CHARACTERS
from orchestrator.queues.question import Question
from orchestrator.queues.records import busy_slots, lost_slots, server_state
from rollyard import codec
from rollyard.errors import NotFound, Unavailable
from rollyard.messages import (
    AgentServer,
    AgentServerStatus,
    Heartbeat,
    HeartbeatReply,
    Name,
    ServerCondition,
)

CONDITIONS = ("held", "quarantine", "failing", "unreached")
COUNTS = ("reclaimed", "loads", "lost_slots", "lent_slots")
HASHES = ("servers", *CONDITIONS, *COUNTS)
"""Hashes from which the status of the agent servers is read."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The server-availability queue at one moment."""

    free: dict[str, int] = {}
    """Agent server -> number of its free Slots that are offered, if any are."""
    classes: dict[str, str] = {}
    """Agent server -> its class: servers of one class can run the same Jobs."""
    slots: int = 0
    """Number of Slots of all servers, free or not."""

    @property
    def free_slots(self) -> int:
        return sum(self.free.values())

    def free_by_class(self) -> Counter[str]:
        free: Counter[str] = Counter()
        for server, slots in self.free.items():
            free[self.classes[server]] += slots
        return free


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that agent servers have, or ever had."""

    environments: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()


class Servers:
    def __init__(self, connection: RedisConnection, lease_seconds: float) -> None:
        self._connection = connection
        self._lease_seconds = lease_seconds

    def register(self, server: AgentServer) -> None:
        """Register a server with all its Slots free; what it held before is requeued and charged.

        The same incarnation again changes nothing: it did not hear the answer. Raises `Unavailable`
        while the id is that of another process, which showed another secret.
        """
        silent = self._connection.run_script(
            "register",
            server.server_id,
            codec.encode(msgspec.structs.replace(server, secret="")),
            server.slots,
            server.ahead,
            int(bool(server.incarnation)),
            server.secret,
            self._lease_seconds,
            server.digest,
            stored_abilities(server),
        )
        if silent is not None:
            raise Unavailable(
                f"the server id {server.server_id!r} is another process's, which was heard of "
                f"{float(silent):.0f} s ago",
                fix="give this one an id of its own; if it was killed and started again, its id is "
                f"free after {self._lease_seconds:g} s of silence",
            )

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Heartbeat of an agent server; the answer names the Leases to stop and to park. As many of
        its places are suspended as it has lost or lent Slots."""
        triples = [
            field
            for lease in heartbeat.leases
            for field in (lease.job_id, lease.slot, lease.attempt)
        ]
        lost = heartbeat.lost.count, heartbeat.lost.reason[:MAX_REASON_CHARACTERS]
        state, *told = self._connection.run_script(
            "heartbeat",
            heartbeat.server_id,
            self._lease_seconds,
            *lost,
            heartbeat.lent,
            *triples,
        )
        stop, parked, published = told or ((), (), 0)
        return HeartbeatReply(
            known=state != 0,
            published=published,
            drained=state == 2,
            stop=tuple(heartbeat.leases[int(index)] for index in stop),
            parked=tuple(heartbeat.leases[int(index)] for index in parked),
        )

    def leave(self, server_id: str) -> None:
        """Forget a server that leaves; Jobs that it held are requeued and not charged."""
        self._connection.run_script("leave", server_id)

    def drain(self, server_id: Name) -> None:
        """Let an agent server finish the Jobs that it runs, and leave. Raises `NotFound`."""
        if not self._connection.run_script("drain", server_id):
            raise NotFound(
                f"there is no agent server {server_id!r}", fix="list them with `rollyard servers`"
            )

    def unreached(self, server_id: str) -> None:
        """Note a delivery that did not reach the server."""
        self._connection.run_script("unreached", server_id)

    def reached(self, server_id: str) -> None:
        """Note a delivery that reached the server."""
        self._connection.do(lambda r: r.hdel(self._connection.key("unreached"), server_id))

    def registered(self) -> list[AgentServer]:
        stored = self._connection.do(lambda r: r.hvals(self._connection.key("servers")))
        servers = [codec.decode(server, AgentServer) for server in stored]
        return sorted(servers, key=lambda server: server.server_id)

    def offer(self) -> Question[Offer]:
        """The Slots on the server-availability queue."""

        def put(pipe: Pipeline) -> None:
            for name in ("class", "offered", "capacity"):
                pipe.hgetall(self._connection.key(name))

        return Question(put, _offer)

    def known(self) -> Question[Known]:
        """The environments and tags of all servers, of those that are gone, too."""

        def put(pipe: Pipeline) -> None:
            for name in ("known_environments", "known_tags"):
                pipe.smembers(self._connection.key(name))

        return Question(put, _known)

    def busy_slots(self) -> dict[str, int]:
        """Server id -> number of its Slots that run a Job."""
        pipe = self._connection.pipeline()
        for name in ("sizes", "loads", "lost_slots", "lent_slots"):
            pipe.hgetall(self._connection.key(name))
        sizes, *counts = self._connection.read(pipe)
        return {
            server.decode(): busy_slots(int(size), *(each.get(server) for each in counts))
            for server, size in sizes.items()
        }

    def statuses(self) -> Question[tuple[AgentServerStatus, ...]]:
        """Registration, load and health of every agent server."""

        def put(pipe: Pipeline) -> None:
            pipe.time()
            pipe.zrange(self._connection.key("seen"), 0, -1, withscores=True)
            for name in HASHES:
                pipe.hgetall(self._connection.key(name))

        return Question(put, _statuses)


def _offer(answers: list[dict[bytes, bytes]]) -> Offer:
    classes, offered, capacity = answers
    return Offer(
        free={server.decode(): int(free) for server, free in offered.items() if int(free)},
        classes={server.decode(): name.decode() for server, name in classes.items()},
        slots=sum(map(int, capacity.values())),
    )


def _known(answers: list[set[bytes]]) -> Known:
    environments, tags = (frozenset(name.decode() for name in names) for names in answers)
    return Known(environments=environments, tags=tags)


def _statuses(answers: list[Any]) -> tuple[AgentServerStatus, ...]:
    (seconds, micros), seen, *hashes = answers
    told, now = dict(zip(HASHES, hashes, strict=True)), seconds + micros / 1e6
    return tuple(_status(server, told, seen_at, now) for server, seen_at in sorted(seen))


def _status(
    name: bytes, told: dict[str, dict[bytes, bytes]], seen_at: float, now: float
) -> AgentServerStatus:
    server = codec.decode(told["servers"][name], AgentServer)
    load, lost, lent = (told[each].get(name) for each in ("loads", "lost_slots", "lent_slots"))
    busy, reclaimed = busy_slots(server.slots, load, lost, lent), told["reclaimed"]
    condition = ServerCondition(
        state=server_state(told["held"].get(name, b"")),
        seen_seconds_ago=max(0.0, now - seen_at),
        failing_jobs=tuple(told["failing"].get(name, b"").decode().split()),
        unreached=int(told["unreached"].get(name, 0)),
        lost=lost_slots(lost),
        lent=int(lent or 0),
        jobs_ahead=int(load or 0) - busy,
        let_back_in_seconds=max(0.0, float(told["quarantine"].get(name, b"0").split()[0]) - now),
        reclaims=int(reclaimed.get(name + b" count", 0)),
        reclaim_seconds=float(reclaimed.get(name + b" seconds", 0)),
        worst_reclaim_seconds=float(reclaimed.get(name + b" worst", 0)),
    )
    return AgentServerStatus(
        server_id=server.server_id,
        url=server.url,
        slots=server.slots,
        busy_slots=busy,
        environments=server.environments,
        tags=server.tags,
        digest=server.digest,
        llm_servers=server.llm_servers,
        door=server.door,
        condition=condition,
    )
