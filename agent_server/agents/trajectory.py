"""The tokens of a growing Trajectory, none of which is ever made from text twice.

The prefix property is checked at every Turn: the prompt that was sent is exactly the previous
prompt, the previous response and the observation after it.
"""

from array import array
from collections.abc import Sequence

from llm_servers.generation import Generation
from rollyard.errors import RollyardError
from rollyard.messages import (
    ChatMessage,
    LogprobArray,
    TokenArray,
    Trajectory,
    Turn,
    WeightSpan,
)


class PrefixBroken(RollyardError):
    """A prompt that does not continue the Turn before it: a bug in the agent."""


class TrajectoryBuilder:
    """Owns the tokens, logprobs and messages of one Trajectory."""

    def __init__(self, prompt: Sequence[int], messages: Sequence[ChatMessage]) -> None:
        self._token_ids: TokenArray = array("i", prompt)
        self._loss_mask: TokenArray = array("b", bytes(len(prompt)))
        self._logprobs: LogprobArray = array("f", bytes(4 * len(prompt)))
        self._weight_spans: list[WeightSpan] = []
        self._turns: list[Turn] = []
        self._messages = list(messages)

    def __len__(self) -> int:
        return len(self._token_ids)

    @property
    def turns(self) -> int:
        return len(self._turns)

    @property
    def version(self) -> int:
        """Version of the weights that sampled the last token; 0 before the first response."""
        return self._weight_spans[-1].version if self._weight_spans else 0

    def prompt(self) -> TokenArray:
        """The next Turn's prompt: every token so far."""
        return self._token_ids[:]

    def add_response(
        self, prompt: Sequence[int], generation: Generation, message: ChatMessage
    ) -> None:
        """Append the response that the policy sampled after `prompt`; `message` is its text."""
        if array("i", prompt) != self._token_ids:
            raise PrefixBroken(
                f"the prompt of turn {self.turns} has {len(prompt)} tokens that do not continue "
                f"the {len(self)} before it"
            )
        start = len(self)
        end = start + len(generation.token_ids)
        self._token_ids.extend(generation.token_ids)
        self._loss_mask.extend([1] * (end - start))
        self._logprobs.extend(generation.logprobs)
        self._weight_spans.extend(
            WeightSpan(version=span.version, start=start + span.start, end=start + span.end)
            for span in generation.weight_spans
        )
        self._turns.append(Turn(start=start, end=end, finish_reason=generation.finish_reason))
        self._messages.append(message)

    def add_observation(self, token_ids: Sequence[int], messages: Sequence[ChatMessage]) -> None:
        """Append an observation, whose tokens the loss mask leaves out."""
        self._token_ids.extend(token_ids)
        self._loss_mask.frombytes(bytes(len(token_ids)))
        self._logprobs.frombytes(bytes(4 * len(token_ids)))
        self._messages.extend(messages)

    def finish(self, *, truncated: bool) -> Trajectory:
        return Trajectory(
            token_ids=self._token_ids,
            loss_mask=self._loss_mask,
            logprobs=self._logprobs,
            weight_spans=tuple(self._weight_spans),
            turns=tuple(self._turns),
            messages=tuple(self._messages),
            truncated=truncated,
        )
