"""The weights that every LLM server should serve, and whether they do.

- What is published is written down before any LLM server hears of it. Versions rise, by at most
  `MAX_VERSION_STEP`; one version never names two checkpoints, also after restarts of anything.
- Nothing is leased while an LLM node that has registered is not known to serve what is published,
  unless an operator has dismissed it since.
- What a node knows to be published counts if it is newer than what is written here.
"""

import msgspec

from rollyard.messages import LLMNode, WeightUpdate

MAX_VERSION_STEP = 1_000_000
"""From one version to the next. Room for trainers that count otherwise than by one, while a slip
cannot use up all versions that there are."""


SILENT_SECONDS = 10.0
"""Longer than an LLM node leaves between two heartbeats, also on a busy machine."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """How far the LLM servers are with what was published last."""

    published: WeightUpdate | None = None
    nodes: tuple[LLMNode, ...] = ()
    unready: dict[str, float] = {}
    """LLM node -> since when its servers do not serve that, unix seconds."""
    silent_seconds: dict[str, float] = {}
    """LLM node -> since its last heartbeat."""

    @property
    def version(self) -> int:
        return self.published.version if self.published is not None else 0

    @property
    def models(self) -> tuple[str, ...]:
        """Digests of the models that the LLM servers have: one, unless they are at odds."""
        return tuple(sorted({node.digest for node in self.nodes if node.digest}))
