"""A model's chat template as token ids: the first prompt, and what follows a response.

An observation is rendered behind a stand-in conversation and cut off after the assistant's end
token, so that the tokens of the real conversation are never rendered again. That is right only for
a template that never rewrites what came before; any other is refused when it is loaded.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from transformers import AutoTokenizer

from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage

_QUESTION = ChatMessage(role="user", content="q")
_ANSWER = ChatMessage(role="assistant", content="a")
_OBSERVATION = ChatMessage(role="tool", content="o")


class _Tokenizer(Protocol):
    """What we use of a transformers tokenizer."""

    eos_token: str | None
    eos_token_id: int | None
    chat_template: str | None

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> str: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(
        self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...


class ChatTemplate:
    """The tokenizer of one model. Safe to share between threads."""

    def __init__(self, tokenizer: _Tokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._lock = threading.Lock()  # fast tokenizers fail when two threads encode at once
        self._end, self.eos_token_id = self._end_token()
        self._refuse_rewriting()

    @classmethod
    def load(cls, model: Path) -> "ChatTemplate":
        """The chat template in the model directory. Raises `InvalidMessage`."""
        if not model.is_dir():
            raise InvalidMessage(
                f"no model at {model}: it is not a directory",
                fix="give the directory that holds tokenizer.json and the chat template",
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
        except (OSError, ValueError) as error:
            raise InvalidMessage(
                f"cannot load a tokenizer from {model}: {str(error).splitlines()[0]}",
                fix="the directory needs tokenizer.json and tokenizer_config.json",
            ) from error
        return cls(tokenizer, str(model))

    def prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The first prompt, ready for the assistant to continue."""
        return self.encode(self._render(messages))

    def observation(self, messages: Sequence[ChatMessage]) -> list[int]:
        """What comes between a response's end token and the next response."""
        return self.encode(self._after_answer(messages))

    def text(self, response: Sequence[int]) -> str:
        """A response as text, without its end token."""
        with self._lock:
            text = self._tokenizer.decode(
                list(response), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        return text.removesuffix(self._end)

    def _end_token(self) -> tuple[str, int]:
        end, end_id = self._tokenizer.eos_token, self._tokenizer.eos_token_id
        if end is None or end_id is None:
            raise InvalidMessage(f"the tokenizer of {self._name} has no eos token")
        if not self._tokenizer.chat_template:
            raise InvalidMessage(
                f"the tokenizer of {self._name} has no chat template",
                fix="agents talk to instruction models; put chat_template.jinja beside it",
            )
        return end, end_id

    def _refuse_rewriting(self) -> None:
        once = self._after_answer([_OBSERVATION])
        history = [_QUESTION, _ANSWER, _OBSERVATION, _ANSWER]
        twice = self._render([*history, _OBSERVATION])
        if not twice.endswith(_ANSWER.content + self._end + once):
            raise self._rewrites("an observation reads differently later in a conversation")
        if not twice.startswith(self._render(history[:3])):
            raise self._rewrites("an earlier turn changes when a later one is added")

    def _after_answer(self, messages: Sequence[ChatMessage]) -> str:
        before = self._render([_QUESTION]) + _ANSWER.content + self._end
        whole = self._render([_QUESTION, _ANSWER, *messages])
        if not whole.startswith(before):
            raise self._rewrites(f"an answer is not followed by the end token {self._end!r}")
        return whole.removeprefix(before)

    def _render(self, messages: Sequence[ChatMessage]) -> str:
        conversation = [{"role": each.role, "content": each.content} for each in messages]
        return self._tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=True
        )

    def encode(self, text: str) -> list[int]:
        """Plain text as tokens, with nothing put around it."""
        with self._lock:
            return self._tokenizer.encode(text, add_special_tokens=False)

    def _rewrites(self, how: str) -> InvalidMessage:
        return InvalidMessage(
            f"the chat template of {self._name} is not append-only: {how}",
            fix="use a template that only ever adds text, so that training sees the exact tokens "
            "that were sampled",
        )
