"""The weights that the LLM servers serve."""

from rollyard.messages.base import Count, Message
from rollyard.messages.result import LogprobArray, TokenArray


class WeightUpdate(Message, frozen=True):
    """Load the checkpoint at `path` on every LLM server and call it `version`."""

    path: str
    version: Count


class WeightReport(Message, frozen=True):
    """The LLM servers that now serve `version`, and how long they stood still for it."""

    version: int
    servers: tuple[str, ...]
    paused_seconds: float


class WeightVersion(Message, frozen=True):
    """What the LLM servers serve now."""

    version: int


class ScoreRequest(Message, frozen=True):
    """Ask every LLM server for the logprobs it gives to these tokens."""

    token_ids: TokenArray


class Scores(Message, frozen=True):
    """LLM server URL -> logprob of each token given those before it; entry 0 is 0.0."""

    logprobs: dict[str, LogprobArray]
