"""Agent servers and LLM nodes in Redis."""

from orchestrator.queues.redis_connection import RedisConnection
from rollyard import codec
from rollyard.messages import AgentServer, Heartbeat, HeartbeatReply, LLMNode


class RedisServers(RedisConnection):
    def register(self, server: AgentServer) -> None:
        named = int(bool(server.incarnation))
        self._run_script("register", server.server_id, codec.encode(server), server.slots, named)

    def leave(self, server_id: str) -> None:
        self._run_script("leave", server_id)

    def servers(self) -> list[AgentServer]:
        stored = self._do(lambda r: r.hvals(self._key("servers")))
        servers = [codec.decode(server, AgentServer) for server in stored]
        return sorted(servers, key=lambda server: server.server_id)

    def busy_slots(self) -> dict[str, int]:
        busy = {server.server_id: 0 for server in self.servers()}
        for slot, state in self._do(lambda r: r.hgetall(self._key("slots"))).items():
            server_id = slot.decode().rsplit("#", 1)[0]
            if state != b"free" and server_id in busy:
                busy[server_id] += 1
        return busy

    def free_slots(self) -> int:
        return int(self._do(lambda r: r.llen(self._key("free"))))

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        triples = [
            field
            for lease in heartbeat.leases
            for field in (lease.job_id, lease.slot, lease.attempt)
        ]
        state, *stop = self._run_script(
            "heartbeat", heartbeat.server_id, self._lease_seconds, *triples
        )
        return HeartbeatReply(
            known=state != 0,
            drained=state == 2,
            stop=tuple(heartbeat.leases[int(index)] for index in stop),
        )

    def register_llm_node(self, node: LLMNode) -> None:
        self._do(lambda r: r.hset(self._key("llm_nodes"), node.node_id, codec.encode(node)))

    def llm_nodes(self) -> list[LLMNode]:
        stored = self._do(lambda r: r.hvals(self._key("llm_nodes")))
        return sorted((codec.decode(n, LLMNode) for n in stored), key=lambda node: node.node_id)
