"""The choice of an LLM server for one request: a pure function of what is known of them.

- The cost of a server is counted in tokens that it would have to process before the response is
  through: those that wait there already, those of the prompt that are not in its cache, and a share
  for each trajectory that it has, which will be back with its next Turn.
- So a trajectory moves where waiting costs more than to recompute its prefix, and nowhere else.
- A trajectory without a home takes a server that has no more than `EVEN` times its share of them.
"""

from collections.abc import Mapping

import msgspec

EVEN = 1.1
TOKENS_OF_TRAJECTORY = 256
"""What a trajectory delays others by, in tokens of a prompt: it samples, or soon will."""


class LoadOfLLM(msgspec.Struct, frozen=True):
    """What an LLM server has to do."""

    waiting_tokens: int = 0
    """Tokens of prompts under way that it has to compute."""
    trajectories: int = 0
    """Trajectories that live there, without the one that is asked for."""


class CachedPrefix(msgspec.Struct, frozen=True):
    """Where the beginning of a prompt is cached."""

    server: str
    tokens: int
    at_home: bool = True
    """True if the trajectory itself lives there; False if one with the same prompt does."""


def cost(server: str, load: LoadOfLLM, prompt_tokens: int, cached: CachedPrefix | None) -> int:
    """The cost of sending a prompt to this server, in tokens."""
    known = cached.tokens if cached is not None and cached.server == server else 0
    recomputed = max(0, prompt_tokens - known)
    return load.waiting_tokens + recomputed + TOKENS_OF_TRAJECTORY * load.trajectories


def choose_server(
    loads: Mapping[str, LoadOfLLM], prompt_tokens: int, cached: CachedPrefix | None = None
) -> str:
    """The server for a prompt, out of `loads`, of which there must be one."""
    open_to_all = loads
    if cached is None or not cached.at_home:
        share = EVEN * (sum(load.trajectories for load in loads.values()) + 1) / len(loads)
        fewest = min(load.trajectories for load in loads.values())
        open_to_all = {
            server: load
            for server, load in loads.items()
            if load.trajectories < share or load.trajectories == fewest
        }

    def rank(server: str) -> tuple[int, bool, int, str]:
        away = cached is None or cached.server != server
        load = open_to_all[server]
        return cost(server, load, prompt_tokens, cached), away, load.trajectories, server

    return min(open_to_all, key=rank)
