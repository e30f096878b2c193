"""The tokenizer of one model: conversations as text, text as token ids, and back."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer as FastTokenizer
from tokenizers.decoders import DecodeStream

from rollyard.errors import InvalidMessage

Written = dict[str, Any]
"""A message, or the schema of a tool, in the form in which chat templates take it."""


class AddedToken(Protocol):
    """A token that was added by its text, and not learned from a corpus."""

    content: str
    special: bool


class _Transformers(Protocol):
    """The part of a transformers tokenizer that is used here."""

    eos_token_id: int | None
    chat_template: str | None
    added_tokens_decoder: Mapping[int, AddedToken]

    def apply_chat_template(
        self,
        conversation: list[Written],
        *,
        tools: list[Written] | None,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> str: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(
        self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...


class Tokenizer:
    """A transformers tokenizer with a chat template. Safe to share between threads."""

    def __init__(self, tokenizer: _Transformers, name: str) -> None:
        self._tokenizer = tokenizer
        self._fast = _fast_part(tokenizer)
        self._spelt: dict[int, str] = {}
        self._begin_thread()
        os.register_at_fork(after_in_child=self._begin_thread)
        self.name = name
        self.eos_token_id = tokenizer.eos_token_id
        self.added_tokens = tuple(tokenizer.added_tokens_decoder.values())
        self.special_tokens = {
            added.content: token
            for token, added in tokenizer.added_tokens_decoder.items()
            if added.special
        }
        """Special tokens by their texts."""
        if not tokenizer.chat_template:
            raise InvalidMessage(
                f"the tokenizer of {name} has no chat template",
                fix="agents talk to instruction models; put chat_template.jinja beside it",
            )
        self.chat_template = tokenizer.chat_template
        """Text of the chat template, a program in Jinja."""

    @classmethod
    def load(cls, model: Path) -> "Tokenizer":
        """The tokenizer in the model directory. Raises `InvalidMessage`."""
        if not model.is_dir():
            raise InvalidMessage(
                f"no model at {model}: it is not a directory",
                fix="give the directory that holds tokenizer.json and the chat template",
            )
        from transformers import AutoTokenizer  # takes longer to import than all else together

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
        except (OSError, ValueError) as error:
            raise InvalidMessage(
                f"cannot load a tokenizer from {model}: {str(error).splitlines()[0]}",
                fix="the directory needs tokenizer.json and tokenizer_config.json",
            ) from error
        return cls(tokenizer, str(model))

    def render(
        self,
        conversation: Sequence[Written],
        tools: Sequence[Written] | None = None,
        *,
        generation_prompt: bool = True,
    ) -> str:
        """A conversation as the chat template writes it, by default up to the assistant's next
        turn."""
        try:
            return self._tokenizer.apply_chat_template(
                list(conversation),
                tools=None if tools is None else list(tools),
                tokenize=False,
                add_generation_prompt=generation_prompt,
            )
        except (
            Exception
        ) as error:  # a template is a program of the model's, and raises what it likes
            roles = ", ".join(str(message["role"]) for message in conversation)
            reason = " ".join(str(error).split())[:200]
            raise InvalidMessage(
                f"the chat template of {self.name} fails on messages of the roles {roles}: "
                f"{type(error).__name__}: {reason}",
                fix="use a template that takes these roles in this order, and asks for nothing but "
                "messages and tools",
            ) from error

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with none put around them; a token that it spells is that one."""
        return self._thread.submit(self._encode, text).result()

    def encode_behind(self, token: int, text: str) -> list[int]:
        """The tokens of a text that follows a token. Encoded alone, the text may begin with a blank
        that the tokenizer adds, and keep one that the token swallows."""
        ids = self.encode(self.spelt(token) + text)
        if ids[:1] != [token]:
            raise InvalidMessage(
                f"the tokenizer of {self.name} does not read its own token {token} back: it "
                f"decodes to {self.spelt(token)!r}"
            )
        return ids[1:]

    def spelt(self, token: int) -> str:
        """The text of one token by itself."""
        if token not in self._spelt:
            self._spelt[token] = self.decode([token])
        return self._spelt[token]

    def spelling(self) -> Callable[[int], str]:
        """Tells, of one token of a response after the other, the text that it completes: that of
        an unfinished character comes with its last token. Tells nothing if the tokenizer cannot."""
        fast = self._fast
        if fast is None:
            return lambda token: ""
        stream = DecodeStream(skip_special_tokens=False)
        return lambda token: stream.step(fast, token) or ""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens, control tokens included."""
        if self._fast is not None:  # in any thread, which keeps less of it than of encoding
            return self._fast.decode(list(token_ids), skip_special_tokens=False)
        return self._thread.submit(
            self._tokenizer.decode,
            list(token_ids),
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        ).result()

    def _encode(self, text: str) -> list[int]:
        if self._fast is not None:
            return self._fast.encode(text, add_special_tokens=False).ids
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _begin_thread(self) -> None:
        # Fast tokenizers fail when two threads encode at once, and keep 20 kB for each that did.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")


def _fast_part(tokenizer: _Transformers) -> FastTokenizer | None:
    """The part of most tokenizers that does the work, and does not need the rest for it."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(fast, FastTokenizer):
        return None
    fast.no_truncation()  # as its file may say, for training
    fast.no_padding()
    return fast
