"""Agent servers and LLM nodes, in the in-memory queues."""

from orchestrator.events import run_of
from orchestrator.queues.memory_yard import MemoryYard, places_of
from rollyard.messages import AgentServer, AttemptOutcome, Heartbeat, HeartbeatReply, LLMNode


class MemoryServers(MemoryYard):
    def register(self, server: AgentServer) -> None:
        with self._changed:
            if server.incarnation and self._servers.get(server.server_id) == server:
                self._seen[server.server_id] = self._clock()
                return
            trouble = self._health.quarantine.get(server.server_id)
            for lease in self._forget_server(server.server_id):
                reason = f"agent server {server.server_id} restarted while it ran the job"
                self._charge(lease, AttemptOutcome.LOST, reason)
            if trouble is not None:
                self._health.return_from(server.server_id, trouble)
            self._servers[server.server_id] = server
            self._seen[server.server_id] = self._clock()
            for slot in places_of(server):
                self._free_slot(slot)
            for run_id in self._runs:
                self._news(run_id)

    def leave(self, server_id: str) -> None:
        with self._changed:
            for lease in self._forget_server(server_id):
                self._hand_back(lease, AttemptOutcome.GIVEN_BACK, f"agent server {server_id} left")

    def servers(self) -> list[AgentServer]:
        with self._changed:
            return [self._servers[server_id] for server_id in sorted(self._servers)]

    def busy_slots(self) -> dict[str, int]:
        with self._changed:
            return {
                server.server_id: min(server.slots, self._load(server))
                for server in self._servers.values()
            }

    def free_slots(self) -> int:
        with self._changed:
            return len(self._free)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        with self._changed:
            server = self._servers.get(heartbeat.server_id)
            if server is None:
                return HeartbeatReply(known=False)
            self._seen[server.server_id] = self._clock()
            stop, parked = [], []
            for lease in heartbeat.leases:
                if self._holds(lease):
                    self._leases[lease.job_id] = self._clock() + self._lease_seconds
                    stay = self._runs[run_of(lease.job_id)].stays[lease.job_id]
                    if stay.parked_since is not None:
                        parked.append(lease)
                else:
                    stop.append(lease)
            running = {lease.slot for lease in heartbeat.leases}
            for slot in places_of(server):
                if slot not in running and self._is_lost(slot):
                    self._free_slot(slot)
            occupied = any(self._slots.get(slot) for slot in places_of(server))
            drained = not occupied and not running and self._health.is_draining(server.server_id)
            return HeartbeatReply(
                known=True, drained=drained, stop=tuple(stop), parked=tuple(parked)
            )

    def _is_lost(self, slot: str) -> bool:
        if slot not in self._slots:
            return True
        lease = self._slots[slot]
        return lease is not None and not self._holds(lease)

    def register_llm_node(self, node: LLMNode) -> None:
        with self._changed:
            self._llm_nodes[node.node_id] = node

    def llm_nodes(self) -> list[LLMNode]:
        with self._changed:
            return [self._llm_nodes[node_id] for node_id in sorted(self._llm_nodes)]

    def weights(self) -> int:
        with self._changed:
            return self._weights

    def set_weights(self, version: int) -> None:
        with self._changed:
            self._weights = version
