"""Which nodes of a fleet are there, judged by how long the orchestrator has not heard of them.

- A node counts as away once it was silent for `ABSENT_SECONDS`, and as there when it is heard of.
- No node is judged by a time in which nobody could have heard it: while the orchestrator does not
  answer, or whoever looks stands still, no silence grows.
"""

from collections.abc import Collection, Mapping

ABSENT_SECONDS = 12.0
"""Six heartbeats; less than agents ask for one answer again, so that a turn can move."""
MOST_SECONDS = 8.0
"""Between two looks, with calls that nobody answers; what is beyond it was a standstill."""


class RollCall:
    """Owns when each node was last known to be there, by the clock of its caller, in seconds."""

    def __init__(self, nodes: Collection[str], now: float) -> None:
        self._there_at = dict.fromkeys(nodes, now)
        self._looked_at = now

    def look(self, silence: Mapping[str, float] | None, now: float) -> frozenset[str]:
        """The nodes that are there. `silence` has, in seconds, how long those were silent that the
        orchestrator knows; it is None if the orchestrator did not answer."""
        since, self._looked_at = now - self._looked_at, now
        if silence is None or since > MOST_SECONDS:
            for node in self._there_at:
                self._there_at[node] += since
        for node, seconds in (silence or {}).items():
            if node in self._there_at:
                self._there_at[node] = max(self._there_at[node], now - seconds)
        return frozenset(node for node, at in self._there_at.items() if now - at < ABSENT_SECONDS)
