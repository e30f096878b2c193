"""The tokens of a growing Trajectory, none of which is ever made from text twice.

- The prefix property is checked at every Turn: the prompt that was sent is exactly the previous
  prompt, the previous response and the observation after it.
- Where the chat template rewrites the conversation, a new sequence begins; those before it are
  never touched again.
"""

from array import array
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from agent_server.agents.conversation import Conversation
from llm_servers.generation import Generation
from rollyard.errors import RollyardError
from rollyard.messages import (
    ChatMessage,
    LogprobArray,
    Sequence,
    TokenArray,
    Trajectory,
    Turn,
    WeightSpan,
)


class PrefixBroken(RollyardError):
    """A prompt that does not continue the Turn before it: a bug in the agent."""


class SequenceBuilder:
    """Owns the tokens and logprobs of one sequence."""

    def __init__(self, prompt: Collection[int]) -> None:
        self.token_ids: TokenArray = array("i")
        self._loss_mask: TokenArray = array("b")
        self._logprobs: LogprobArray = array("f")
        self._weight_spans: list[WeightSpan] = []
        self.turns: list[Turn] = []
        self.add_given(prompt)

    def add_sampled(self, generation: Generation) -> None:
        start = len(self.token_ids)
        end = start + len(generation.token_ids)
        self.token_ids.extend(generation.token_ids)
        self._loss_mask.extend([1] * (end - start))
        self._logprobs.extend(generation.logprobs)
        self._weight_spans.extend(
            msgspec.structs.replace(span, start=start + span.start, end=start + span.end)
            for span in generation.weight_spans
        )
        self.turns.append(Turn(start=start, end=end, finish_reason=generation.finish_reason))

    def add_given(self, token_ids: Collection[int]) -> None:
        """Append tokens that the loss mask leaves out."""
        self.token_ids.extend(token_ids)
        self._loss_mask.frombytes(bytes(len(token_ids)))
        self._logprobs.frombytes(bytes(4 * len(token_ids)))

    def fields(self) -> dict[str, Any]:
        """The fields of a `Sequence`."""
        return {
            "token_ids": self.token_ids,
            "loss_mask": self._loss_mask,
            "logprobs": self._logprobs,
            "weight_spans": tuple(self._weight_spans),
            "turns": tuple(self.turns),
        }


class TrajectoryBuilder:
    """Owns the sequences and the messages of one Trajectory."""

    def __init__(self, prompt: Collection[int], messages: Iterable[ChatMessage]) -> None:
        self._earlier: list[Sequence] = []
        self._sequence = SequenceBuilder(prompt)
        self._messages = list(messages)
        self._opening = len(self._messages)
        self._prompted = self._opening  # messages that the growing sequence's prompt was made of
        self.version = 0
        """Version of the weights that sampled the last token; 0 before the first response."""

    def __len__(self) -> int:
        """Tokens of the sequence that is growing, which the next prompt consists of."""
        return len(self._sequence.token_ids)

    @property
    def turns(self) -> int:
        """Turns taken so far, in all sequences."""
        return sum(len(each.turns) for each in self._earlier) + len(self._sequence.turns)

    @property
    def history(self) -> Conversation:
        """The conversation so far."""
        return Conversation(
            messages=tuple(self._messages), opening=self._opening, prompted=self._prompted
        )

    def prompt(self) -> TokenArray:
        """The next Turn's prompt: every token of the sequence so far."""
        return self._sequence.token_ids[:]

    def add_response(
        self, prompt: Collection[int], generation: Generation, message: ChatMessage
    ) -> None:
        """Append the response that the policy sampled after `prompt`; `message` is its text."""
        if array("i", prompt) != self._sequence.token_ids:
            raise PrefixBroken(
                f"the prompt of turn {self.turns} has {len(prompt)} tokens that do not continue "
                f"the {len(self)} before it"
            )
        self._sequence.add_sampled(generation)
        if generation.weight_spans:
            self.version = generation.weight_spans[-1].version
        self._messages.append(message)

    def add_observation(self, token_ids: Collection[int], messages: Iterable[ChatMessage]) -> None:
        """Append an observation, whose tokens the loss mask leaves out."""
        self._sequence.add_given(token_ids)
        self._messages.extend(messages)

    def begin_sequence(self, prompt: Collection[int], messages: Iterable[ChatMessage]) -> None:
        """Append an observation with which the chat template rewrites the conversation: `prompt` is
        all of it, `messages` included."""
        self._earlier.append(Sequence(**self._sequence.fields()))
        self._sequence = SequenceBuilder(prompt)
        self._messages.extend(messages)
        self._prompted = len(self._messages)

    def finish(self, *, truncated: bool) -> Trajectory:
        """A new sequence that there was no time to sample in is left out: many trainers take the
        last one alone."""
        *earlier, last = (*self._earlier, Sequence(**self._sequence.fields()))
        if earlier and not last.turns:
            last = earlier.pop()
        return Trajectory(
            **msgspec.structs.asdict(last),
            messages=tuple(self._messages),
            truncated=truncated,
            earlier=tuple(earlier),
        )
