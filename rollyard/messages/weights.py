"""The weights that the LLM servers serve."""

from rollyard.messages.base import Count, Message, Name, Url, check_name, check_url
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
    """The highest version that was ever published."""

    version: int


class LLMNode(Message, frozen=True):
    """The control service of one node's LLM servers, as each of its heartbeats tells."""

    node_id: Name
    url: Url
    servers: tuple[str, ...]
    model: str
    digest: str = ""
    """Of the model, see `serving.model_digest`."""
    serves: Count | None = None
    """The version of every server that answers; None while they differ or stand still, and when
    none answers."""
    published: WeightUpdate | None = None
    """What was published last as far as it knows; its path is empty where only the version is
    known."""
    trouble: str = ""
    """Why its servers cannot serve what was published; empty when it knows of no reason."""

    def __post_init__(self) -> None:
        check_name(self.node_id, "node_id")
        check_url(self.url)


class ToServe(Message, frozen=True):
    """What an LLM node is told with each heartbeat."""

    published: WeightUpdate | None = None
    """What every LLM server should serve; None: the model as started, which is version 0."""


class ScoreRequest(Message, frozen=True):
    """Ask every LLM server for the logprobs it gives to these tokens."""

    token_ids: TokenArray


class Scores(Message, frozen=True):
    """LLM server URL -> logprob of each token given those before it; entry 0 is 0.0."""

    logprobs: dict[str, LogprobArray]
