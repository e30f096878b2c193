"""The scripted policy: its responses, and the logprob it gives to any token.

- Pure: the same prompt and draw give the same response; the same weights, prefix and token give
  the same logprob, whether the token was generated or is scored later.
- It answers the conversation's last message, in the ChatML form of the model's tokenizer, and
  calls the tool in the form that the arithmetic environment understands.
- It continues a response that the prompt already begins.
- What it was given replies for, it answers with those.
"""

import hashlib
import random
import re
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from llm_servers.model_files import end_tokens
from llm_servers.scripted.replies import Replies
from rollyard.errors import LaunchError

START, END = "<|im_start|>", "<|im_end|>"
TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"

_ASKS = f"{START}assistant\n"
_MESSAGE = re.compile(re.escape(START) + r"(\w+)\n(.*?)" + re.escape(END), re.DOTALL)
_MIN_LOGPROB = -4.0
"""Logprobs are distributed uniformly over (_MIN_LOGPROB, 0)."""


class Vocabulary:
    """The tokenizer of a model directory."""

    def __init__(self, tokenizer: Tokenizer, end_of_turn: int, ends: tuple[int, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self.end_of_turn = end_of_turn
        self.ends = frozenset((end_of_turn, *ends))
        """Tokens that end a response unless the request has `ignore_eos`."""
        self.size: int = tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, model: Path) -> "Vocabulary":
        path = model / "tokenizer.json"
        if not path.is_file():
            raise LaunchError(
                f"no tokenizer at {path}", fix="give a model directory that holds tokenizer.json"
            )
        tokenizer = Tokenizer.from_file(str(path))
        end_of_turn = tokenizer.token_to_id(END)
        if end_of_turn is None:
            raise LaunchError(
                f"the tokenizer at {path} has no {END} token",
                fix="the scripted server speaks ChatML only",
            )
        return cls(tokenizer, end_of_turn, end_tokens(model))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return text


class ScriptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of the policy."""

    seed: int = 0
    tool_rate: float = 0.5
    """Probability of calling the tool."""
    replies: tuple[Replies, ...] = ()
    """Replies to conversations that ask one of these questions; the first that fits is taken."""

    def __post_init__(self) -> None:
        if not 0 <= self.tool_rate <= 1:
            raise LaunchError(f"tool_rate must be in 0..1, got {self.tool_rate}")


class Script:
    """The policy's responses."""

    def __init__(self, vocabulary: Vocabulary, settings: ScriptSettings) -> None:
        self.vocabulary = vocabulary
        self._settings = settings

    def response(self, prompt_ids: Sequence[int], draw: str) -> list[int]:
        """The rest of the response after `prompt_ids`, its end-of-turn token included."""
        chance = random.Random(f"{self._settings.seed}/{draw}/{prompt_ids}")
        prompt = self.vocabulary.decode(prompt_ids)
        said = prompt.rpartition(_ASKS)[2] if _ASKS in prompt else ""
        text = self._answer(prompt, said, chance).removeprefix(said)
        return [*self.vocabulary.encode(text), self.vocabulary.end_of_turn]

    def _answer(self, conversation: str, said: str, chance: random.Random) -> str:
        """The whole answer, which begins with `said`."""
        messages = _MESSAGE.findall(conversation)
        if not messages:
            return "?"
        for replies in self._settings.replies:
            if any(replies.asks in content for role, content in messages if role == "user"):
                earlier = [content for role, content in messages if role == "assistant"]
                return replies.next(earlier, said, chance)
        role, content = messages[-1]
        if role == "tool":
            return str(content)
        if said.startswith(TOOL_CALL) or (not said and chance.random() < self._settings.tool_rate):
            return f"{TOOL_CALL}{content}{TOOL_CALL_END}"
        return said + _guess(content, chance)[len(said) :]


class LogprobChain:
    """Logprobs along one sequence: each depends on the token, those before it, and the fingerprint
    of the weights."""

    def __init__(self, weights: str, prefix: list[int] | None = None) -> None:
        self._digest = hashlib.blake2b(weights.encode(), digest_size=8)
        for token in prefix or ():
            self.extend(token)

    def extend(self, token: int) -> float:
        """Append `token` and return its logprob."""
        self._digest.update(struct.pack("<i", token))
        (draw,) = struct.unpack("<I", self._digest.digest()[:4])
        logprob: float = _MIN_LOGPROB * (draw + 1) / 2**32
        return array("f", [logprob])[0]  # as a float32 it is the same after crossing a process


def _guess(question: str, chance: random.Random) -> str:
    """A number about as long as the product would be: plausible, and nearly always wrong."""
    factors = [len(digits) for digits in re.findall(r"\d+", question)]
    digits = min(max(1, sum(factors)), 12)
    return str(chance.randrange(10 ** (digits - 1), 10**digits))
