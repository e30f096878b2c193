"""The LLM servers of a simulated fleet: their pace, their prefix caches, production's routes.

A server keeps the prefix of each of its trajectories, and the prompts of Groups that it had, until
new weights make them void. What it does not keep it computes before it samples.
"""

from collections.abc import Callable

from agent_server.routing import LLMRoutes
from rollyard.errors import LLMUnavailable
from simulator.fleet.settings import LLMPace, SimulatedFleet
from simulator.fleet.sharing import SharedResource, Use
from simulator.work import Timer


class SimulatedLLM:
    """One LLM server. Owns what its cache has of Groups."""

    def __init__(self, name: str, pace: LLMPace, clock: Timer) -> None:
        self.name = name
        self.shared = SharedResource(clock, pace.tokens_per_second)
        self.lost = False
        self.prompts = set[str]()
        """Groups whose prompt is in the cache."""
        self.computed_tokens = 0
        """Prompt tokens computed."""
        self._pace = pace

    def sample(self, tokens: float, prompt_tokens: int, done: Callable[[], None]) -> Use:
        """Compute so many tokens of the prompt, and then sample a response."""
        self.computed_tokens += prompt_tokens
        return self.shared.begin(tokens + prompt_tokens / self._pace.prompt_tokens_in_one, done)


class SimulatedLLMs:
    """All LLM servers, and each agent server's routes to those that it asks."""

    def __init__(self, fleet: SimulatedFleet, clock: Timer) -> None:
        placement = fleet.placement()
        self.all = {
            server.name: SimulatedLLM(server.name, fleet.pace, clock)
            for server in placement.llm_servers
        }
        self._routes = {
            agents.node: LLMRoutes(agents.llm_servers, clock=lambda: clock.now)
            for agents in placement.agent_servers
        }

    def server_of(self, node: str, trajectory: str, group: str) -> SimulatedLLM:
        """The server that this node's agent server asks for the trajectory's next Turn."""
        routes = self._routes[node]
        for _ in self.all:
            name = routes.server_of(trajectory, group)
            assert name is not None, "a fleet has LLM servers from its start"
            if not self.all[name].lost:
                return self.all[name]
            routes.move(trajectory, group, name)
        raise LLMUnavailable(f"all LLM servers that {node} asks are lost")

    def release(self, node: str, trajectory: str) -> None:
        self._routes[node].release(trajectory)

    def forget_prompts(self) -> None:
        for server in self.all.values():
            server.prompts.clear()
