"""The agent servers and the server-availability queue, on which their free Slots stand.

- A server on which `after_failures` different Jobs fail in a row is quarantined, unless half of the
  servers are; so is one that `MAX_UNREACHED` deliveries in a row did not reach, though its
  heartbeats arrive: none of its Slots is offered, then one (probation), and after a success all.
- A draining server gets nothing more; its next heartbeat without work is told to leave.
"""

import msgspec
from redis.client import Pipeline

from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.limits import MAX_REASON_CHARACTERS
from orchestrator.queues.records import busy_slots, jobs_ahead, lost_slots, server_state
from rollyard import codec
from rollyard.errors import NotFound, Unavailable
from rollyard.messages import AgentServer, Heartbeat, HeartbeatReply, ServerCondition


class Servers:
    def __init__(self, connection: RedisConnection, lease_seconds: float) -> None:
        self._connection = connection
        self._lease_seconds = lease_seconds

    def register(self, server: AgentServer) -> None:
        """A server starts with all its Slots free; what it held before is requeued and charged.

        The same incarnation again changes nothing: it did not hear the answer. Raises `Unavailable`
        while the id is that of another process, which showed another secret.
        """
        named = int(bool(server.incarnation))
        message = codec.encode(msgspec.structs.replace(server, secret=""))
        shape = (
            server.slots,
            server.ahead,
            named,
            server.secret,
            self._lease_seconds,
            server.digest,
        )
        silent = self._connection.run_script("register", server.server_id, message, *shape)
        if silent is not None:
            raise Unavailable(
                f"the server id {server.server_id!r} is another process's, which was heard of "
                f"{float(silent):.0f} s ago",
                fix="give this one an id of its own; if it was killed and started again, its id is "
                f"free after {self._lease_seconds:g} s of silence",
            )

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Extend the Leases named; tell which of them are no longer held, and which are parked.

        As many places of the server as it has lost Slots are suspended.
        """
        triples = [
            field
            for lease in heartbeat.leases
            for field in (lease.job_id, lease.slot, lease.attempt)
        ]
        lost = heartbeat.lost.count, heartbeat.lost.reason[:MAX_REASON_CHARACTERS]
        state, *told = self._connection.run_script(
            "heartbeat", heartbeat.server_id, self._lease_seconds, *lost, *triples
        )
        stop, parked = told or ((), ())
        return HeartbeatReply(
            known=state != 0,
            drained=state == 2,
            stop=tuple(heartbeat.leases[int(index)] for index in stop),
            parked=tuple(heartbeat.leases[int(index)] for index in parked),
        )

    def leave(self, server_id: str) -> None:
        """A server goes; the Jobs that it held are requeued and not charged."""
        self._connection.run_script("leave", server_id)

    def drain(self, server_id: str) -> None:
        """Lease nothing more to the server. Raises `NotFound`."""
        if not self._connection.run_script("drain", server_id):
            raise NotFound(
                f"there is no agent server {server_id!r}", fix="list them with `rollyard servers`"
            )

    def unreached(self, server_id: str) -> None:
        """A delivery did not reach the server."""
        self._connection.run_script("unreached", server_id)

    def reached(self, server_id: str) -> None:
        """A delivery reached the server."""
        self._connection.do(lambda r: r.hdel(self._connection.key("unreached"), server_id))

    def registered(self) -> list[AgentServer]:
        stored = self._connection.do(lambda r: r.hvals(self._connection.key("servers")))
        servers = [codec.decode(server, AgentServer) for server in stored]
        return sorted(servers, key=lambda server: server.server_id)

    def free_slots(self) -> int:
        return int(self._connection.do(lambda r: r.llen(self._connection.key("free"))))

    def busy_slots(self) -> dict[str, int]:
        """Server id -> how many of its Slots run a Job."""

        def ask(pipe: Pipeline) -> None:
            for name in ("sizes", "loads", "lost_slots"):
                pipe.hgetall(self._connection.key(name))

        sizes, loads, lost = self._connection.read(ask)
        return {
            server.decode(): busy_slots(size, loads.get(server), lost.get(server))
            for server, size in sizes.items()
        }

    def conditions(self) -> dict[str, ServerCondition]:
        """Server id -> how it fares, for every registered server."""
        counts = ("unreached", "reclaimed", "sizes", "loads", "lost_slots")
        names = ("held", "quarantine", "failing", *counts)

        def ask(pipe: Pipeline) -> None:
            pipe.time()
            pipe.zrange(self._connection.key("seen"), 0, -1, withscores=True)
            for name in names:
                pipe.hgetall(self._connection.key(name))

        (seconds, micros), seen, held, quarantine, failing, *told = self._connection.read(ask)
        unreached, reclaimed, sizes, loads, lost = told
        at = seconds + micros / 1e6
        return {
            server.decode(): ServerCondition(
                state=server_state(held.get(server, b"")),
                seen_seconds_ago=max(0.0, at - seen_at),
                failing_jobs=tuple(failing.get(server, b"").decode().split()),
                unreached=int(unreached.get(server, 0)),
                lost=lost_slots(lost.get(server)),
                jobs_ahead=jobs_ahead(sizes.get(server, b"0"), loads.get(server), lost.get(server)),
                let_back_in_seconds=max(0.0, float(quarantine.get(server, b"0").split()[0]) - at),
                reclaims=int(reclaimed.get(server + b" count", 0)),
                reclaim_seconds=float(reclaimed.get(server + b" seconds", 0)),
                worst_reclaim_seconds=float(reclaimed.get(server + b" worst", 0)),
            )
            for server, seen_at in seen
        }
