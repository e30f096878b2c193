"""`python openenv_game.py PORT GAME`: a game on the real OpenEnv server.

`guess` takes a text, `crash` among them, which raises; `calculator` has tools, over MCP.
"""

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation


class Move(Action):  # type: ignore[misc]
    message: str


class Shown(Observation):  # type: ignore[misc]
    prompt: str


class Guess(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int = 4, episode_id: str | None = None, **_: Any) -> Shown:
        self.secret, self.moves = seed, 0
        return Shown(prompt="Which number?")

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Shown:
        if action.message == "crash":
            raise ValueError("the board is gone")
        self.moves += action.message.isdigit()  # what is no number costs nothing
        right = action.message == str(self.secret)
        return Shown(
            prompt="right" if right else "wrong",
            reward=float(right),
            done=right or self.moves > 2,
            metadata={"moves": self.moves},
        )

    @property
    def state(self) -> State:
        return State()


class Calculator(MCPEnvironment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("calculator")
        tools.tool(self.add)
        tools.tool(self.finish)
        super().__init__(tools)
        self.sum = 0

    def add(self, number: int) -> int:
        """Add to the sum."""
        self.sum += number
        return self.sum

    def finish(self) -> str:
        """End."""
        raise ValueError("not before ten")

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **_: Any
    ) -> Observation:
        return Observation(done=False, reward=0.0)

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        seen = super().step(action, timeout_s, **kwargs)
        return self._graded(seen)

    async def step_async(
        self, action: Action, timeout_s: float | None = None, **kwargs: Any
    ) -> Observation:
        return self._graded(await super().step_async(action, timeout_s, **kwargs))

    def _graded(self, seen: Observation) -> Observation:
        if isinstance(seen, CallToolObservation):
            seen.done = self.sum == 10
            seen.reward = float(seen.done)
        return seen

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return Observation(done=False)

    @property
    def state(self) -> State:
        return State()


KINDS = {
    "guess": (Guess, Move, Shown),
    "calculator": (Calculator, CallToolAction, CallToolObservation),
}

if __name__ == "__main__":
    port, game = sys.argv[1:]
    app = create_app(*KINDS[game], env_name=game, max_concurrent_envs=16)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
