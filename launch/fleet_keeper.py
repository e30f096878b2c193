"""The keeper of a fleet: it plans again when nodes fall silent or are heard of again.

- Who is there is asked of the orchestrator, which every service of every node tells that it lives.
- The new plan is written before any agent server is told: one that starts meanwhile begins with it.
- An agent server that could not be told is told at the next look. Where nodes share no directory,
  one that starts meanwhile begins with the first plan: whatever differs is told at every look,
  which changes nothing for those that know it.
- An LLM node that is away is dismissed, so that no weight update waits for it; its next heartbeat
  registers it again.
"""

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from launch.fleet import FleetPlan, write_fleet
from launch.replanning import changes, replanned
from launch.roll_call import ABSENT_SECONDS, RollCall
from rollyard.errors import RollyardError
from rollyard.http import Peer, orchestrator_at
from rollyard.messages import Accepted, FleetStatus, LLMServersToAsk
from rollyard.tokens import read_tokens

LOOK_SECONDS = 2.0
"""Between two looks: nothing tells of a node that falls silent."""
CALL_SECONDS = 2.0
"""Time for each of the two waits of a look: the status, and all agent servers together."""
_AT_ONCE = 64


class FleetKeeper:
    """Owns the plan of a running fleet. Call `look` every `LOOK_SECONDS`."""

    def __init__(
        self,
        fleet: FleetPlan,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        shared: bool = True,
    ) -> None:
        """`shared` says whether all nodes read the plan where it is written."""
        self.fleet = fleet
        self._tell = tell
        self._clock = clock
        tokens = read_tokens(fleet.settings.token_file)
        self._token = tokens.for_services
        self._orchestrator = orchestrator_at(fleet.orchestrator_url, tokens.widest)
        self._roll_call = RollCall(fleet.nodes, clock())
        self._first = fleet
        self._shared = shared
        self._hosts = {server.node for server in fleet.placement.llm_servers}
        self._untold = {} if shared else {node: fleet.proxies_of(node) for node in fleet.nodes}
        """Node -> the proxies that its agent server has to be told."""

    def look(self) -> None:
        """Find out who is there, and have everyone work with these."""
        status = self._status()
        silence = None if status is None else self._silence(status)
        present = self._roll_call.look(silence, self._clock())
        if present != set(self.fleet.nodes) - {*self.fleet.absent}:
            self._plan_again(present)
        self._tell_agents()
        if status is not None:
            self._dismiss({node.node_id for node in status.llm_nodes} & {*self.fleet.absent})

    def close(self) -> None:
        self._orchestrator.close()

    def _status(self) -> FleetStatus | None:
        try:
            return self._orchestrator.get("/status", FleetStatus, timeout_seconds=CALL_SECONDS)
        except RollyardError:
            return None  # its node starts it again, and nobody is judged meanwhile

    def _silence(self, status: FleetStatus) -> dict[str, float]:
        """Node -> seconds since it was heard of: its LLM servers, if it has any, else its agent
        server."""
        agents = {f"agent-{node}": node for node in self.fleet.nodes}
        heard = {
            agents[server.server_id]: server.condition.seen_seconds_ago
            for server in status.servers
            if server.server_id in agents
        }
        helpers = {node: seconds for node, seconds in heard.items() if node not in self._hosts}
        return helpers | status.llm_silence

    def _plan_again(self, present: Collection[str]) -> None:
        before, planned = self.fleet, replanned(self.fleet, present)
        try:
            write_fleet(planned)
        except OSError as error:  # the next look plans again
            directory = planned.settings.directory
            self._tell(f"cannot write the plan to {directory}: {error.strerror}")
            return
        self.fleet = planned
        for node in self.fleet.nodes:
            if node in self.fleet.absent and node not in before.absent:
                self._tell(f"{node} has not been heard of for {ABSENT_SECONDS:g} s")
            if node in before.absent and node not in self.fleet.absent:
                self._tell(f"{node} is there again")
        changed = changes(before, self.fleet)
        for node, proxies in changed.items():
            self._tell(f"the agent server of {node} now asks {' '.join(proxies)}")
        self._untold |= changed

    def _tell_agents(self) -> None:
        due = {n: urls for n, urls in self._untold.items() if n not in self.fleet.absent}
        if not self._shared:
            due |= self._differing()
        if not due:
            return
        with ThreadPoolExecutor(min(_AT_ONCE, len(due))) as threads:
            told = threads.map(self._tell_agent, due.keys(), due.values())
            for node, done in zip(due, told, strict=True):
                if done:
                    self._untold.pop(node, None)

    def _differing(self) -> dict[str, dict[str, int]]:
        """Node -> its proxies, where the first plan has others; also of nodes that are away, as
        they could not become ready with LLM servers that are."""
        now = {node: self.fleet.proxies_of(node) for node in self.fleet.nodes}
        return {n: urls for n, urls in now.items() if urls != self._first.proxies_of(n)}

    def _tell_agent(self, node: str, proxies: dict[str, int]) -> bool:
        lost = (self.fleet.proxy_url(each) for each in self.fleet.absent if each in self._hosts)
        order = LLMServersToAsk(
            proxies=proxies, gone=tuple(url for url in lost if url not in proxies)
        )
        peer = Peer(
            self.fleet.agent_url(node), name=f"the agent server of {node}", token=self._token
        )
        try:
            peer.post("/llm-servers", order, Accepted, timeout_seconds=CALL_SECONDS)
        except RollyardError:
            return False
        finally:
            peer.close()
        return True

    def _dismiss(self, nodes: Collection[str]) -> None:
        for node in nodes:
            path = f"/llm-nodes/{node}/dismiss"
            try:
                self._orchestrator.post(path, None, Accepted, timeout_seconds=CALL_SECONDS)
            except RollyardError as error:  # it was heard of just now, or the orchestrator ended
                self._tell(f"LLM node {node} was not dismissed: {error.message}")
            else:
                self._tell(f"LLM node {node} is dismissed: no weight update waits for it")
