"""Whether LLM servers have the weights that a trainer says it has put on them itself, as far as
that can be seen from outside: by the logprobs of a few tokens, before and after.

- A server that answers to the bit as before, while others do not, has not got them.
- Servers whose answers are far apart have not all got the same ones.
- If all answer as before, nobody can tell: the weights of a step may be those of the one before.
"""

from array import array
from collections.abc import Mapping

from rollyard.messages import LogprobArray

PROBE = array("i", range(1, 17))
"""Tokens that every model has."""
APART = 0.1
"""Difference in a logprob, in nats, that is no rounding of 16 bits."""


class Refits:
    """Owns what each server answered last."""

    def __init__(self) -> None:
        self._heard: dict[str, LogprobArray] = {}

    def remember(self, heard: Mapping[str, LogprobArray]) -> None:
        self._heard = dict(heard)

    def unchanged(self, heard: Mapping[str, LogprobArray]) -> tuple[str, ...]:
        """The servers that answer to the bit as before."""
        return tuple(url for url, answer in heard.items() if self._heard.get(url) == answer)

    def why_not(self, heard: Mapping[str, LogprobArray]) -> str:
        """The reason why not all of these servers have new weights; empty if none is seen."""
        unchanged = self.unchanged(heard)
        if unchanged and any(url in self._heard and url not in unchanged for url in heard):
            return f"{' and '.join(unchanged)} answer as before the update, and others do not"
        apart = max(
            (max(each) - min(each) for each in zip(*heard.values(), strict=True)), default=0
        )
        if apart > APART:
            servers = " and ".join(heard)
            return f"the logprobs of {servers} are up to {apart:.2f} apart: they differ in weights"
        return ""
