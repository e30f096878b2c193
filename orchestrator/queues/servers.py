"""Agent servers in Redis."""

from typing import Any

import msgspec
import redis

from orchestrator.queues.operations import MAX_REASON_CHARACTERS
from orchestrator.queues.redis_connection import RedisConnection
from orchestrator.queues.redis_records import busy_slots
from rollyard import codec
from rollyard.errors import Unavailable
from rollyard.messages import AgentServer, Heartbeat, HeartbeatReply


class RedisServers(RedisConnection):
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
        silent = self._run_script("register", server.server_id, message, *shape)
        if silent is not None:
            raise Unavailable(
                f"the server id {server.server_id!r} is another process's, which was heard of "
                f"{float(silent):.0f} s ago",
                fix="give this one an id of its own; if it was killed and started again, its id is "
                f"free after {self._lease_seconds:g} s of silence",
            )

    def unreached(self, server_id: str) -> None:
        """A delivery did not reach the server."""
        self._run_script("unreached", server_id)

    def reached(self, server_id: str) -> None:
        """A delivery reached the server."""
        self._do(lambda r: r.hdel(self._key("unreached"), server_id))

    def leave(self, server_id: str) -> None:
        """A server goes; the Jobs that it held are requeued and not charged."""
        self._run_script("leave", server_id)

    def servers(self) -> list[AgentServer]:
        stored = self._do(lambda r: r.hvals(self._key("servers")))
        servers = [codec.decode(server, AgentServer) for server in stored]
        return sorted(servers, key=lambda server: server.server_id)

    def busy_slots(self) -> dict[str, int]:
        """Server id -> how many of its Slots run a Job."""

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hgetall(self._key("sizes"))
            pipe.hgetall(self._key("loads"))
            pipe.hgetall(self._key("lost_slots"))
            return pipe.execute()

        sizes, loads, lost = self._do(read)
        return {
            server.decode(): busy_slots(size, loads.get(server), lost.get(server))
            for server, size in sizes.items()
        }

    def free_slots(self) -> int:
        return int(self._do(lambda r: r.llen(self._key("free"))))

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
        state, *told = self._run_script(
            "heartbeat", heartbeat.server_id, self._lease_seconds, *lost, *triples
        )
        stop, parked = told or ((), ())
        return HeartbeatReply(
            known=state != 0,
            drained=state == 2,
            stop=tuple(heartbeat.leases[int(index)] for index in stop),
            parked=tuple(heartbeat.leases[int(index)] for index in parked),
        )
