"""Weights: their versions, where they are served, and logprobs computed with them."""

from typing import Annotated

from rollyard.messages.base import (
    URL,
    Count,
    Message,
    Name,
    Url,
    check,
    check_name,
    check_url,
    described,
)
from rollyard.messages.trajectory import LogprobArray, TokenArray


class WeightUpdate(Message, frozen=True):
    """The order to load a checkpoint on every LLM server, and to call it `version`."""

    path: str
    """Directory of the checkpoint, as the LLM servers see it; empty if the trainer has put the
    weights on them itself."""
    version: Count


class WeightReport(Message, frozen=True):
    """The LLM servers that now serve `version`, and how long generation was paused for it."""

    version: int
    servers: tuple[str, ...]
    paused_seconds: float
    load_seconds: float = 0.0
    """What the slowest of them took of that to load the weights."""
    behind: dict[str, str] = {}
    """LLM servers that have not got them, by URL, with the reason: they get no requests until they
    have."""
    unchanged: tuple[str, ...] = ()
    """Of an update without a path: LLM servers that answer to the bit as before it. Unless the
    weights are those of before, they have not got them."""


class WeightVersion(Message, frozen=True):
    """The highest weight version ever published; 0 before the first update."""

    version: int


class LLMServerState(Message, frozen=True, kw_only=True):
    """State of one LLM server."""

    url: str
    healthy: bool
    paused: bool = False
    """True if its generations are frozen, as during a weight update."""
    version: int | None = None
    """Its weight version; None if it does not answer, or was not labelled since it started."""
    adapter: str = ""
    """Directory of the LoRA adapter that it was given last; empty if none is in force."""
    trouble: str = ""
    """Reason why it lacks the published weights, where one is known."""


class LLMNode(Message, frozen=True):
    """The control service of one node's LLM servers, or a trainer with LLM servers of its own; each
    heartbeat is one."""

    node_id: Name
    url: Annotated[str, described(pattern=f"^({URL.pattern})?$")]
    """URL of the control service; empty if a trainer puts the weights on the servers itself."""
    servers: tuple[str, ...]
    model: str
    digest: str = ""
    """Digest of the model, see `serving.model_digest`; empty if not told."""
    serves: Count | None = None
    """Weight version of all servers that are given requests; None while they differ or are paused,
    and when there is none."""
    published: WeightUpdate | None = None
    """The last published update that the node knows of; its path is empty where only the version
    is known."""
    trouble: str = ""
    """Reason why its servers cannot serve the published weights; empty if it knows of none."""
    states: tuple[LLMServerState, ...] = ()
    """What each of its servers serves."""
    proxy: str = ""
    """URL of the proxy before its servers, for agent servers of any node; empty if it has none."""

    def __post_init__(self) -> None:
        check_name(self.node_id, "node_id")
        for url in filter(None, (self.url, self.proxy)):
            check_url(url)


class LLMNodeList(Message, frozen=True):
    """The LLM nodes that were heard of a moment ago."""

    nodes: tuple[LLMNode, ...]


class TrainerServers(Message, frozen=True):
    """The LLM servers that a trainer runs itself; each of its announcements is one."""

    name: Name
    """Name under which they are known: each has the servers that were announced last."""
    servers: tuple[Url, ...]
    """Their URLs; none to say that they are gone."""

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        for url in self.servers:
            check_url(url)
        twice = {url for url in self.servers if self.servers.count(url) > 1}
        check(not twice, f"an LLM server is announced twice: {' '.join(sorted(twice))}")


class LLMFarewell(Message, frozen=True):
    """The last word of an LLM node that leaves."""

    node_id: Name

    def __post_init__(self) -> None:
        check_name(self.node_id, "node_id")


class ToServe(Message, frozen=True):
    """The answer to an LLM node's heartbeat."""

    published: WeightUpdate | None = None
    """The weights that every LLM server should serve; None for the model as started, which is
    version 0."""


class ScoreRequest(Message, frozen=True):
    """The request that every LLM server compute the logprobs of these tokens."""

    token_ids: TokenArray
    """int32 [tokens]."""


class Scores(Message, frozen=True):
    """The logprobs that every LLM server gives to the tokens of a `ScoreRequest`."""

    logprobs: dict[str, LogprobArray]
    """LLM server URL -> float32 [tokens]: log-probability of each token given those before it.
    Entry 0 is 0.0, since nothing comes before it."""
