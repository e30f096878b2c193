"""The named stop tokens: those that the model's own files name, and those of a setting.

A model may have learned to end its turn in several ways. LLM servers read the same files, and every
request names the tokens all the same: the end of a response must not depend on who answers.
"""

from collections.abc import Sequence
from pathlib import Path

from agent_server.agents.tokenizer import Tokenizer
from llm_servers.model_files import end_tokens
from rollyard.errors import InvalidMessage


def find_stop_tokens(tokenizer: Tokenizer, model: Path, named: Sequence[str]) -> tuple[int, ...]:
    """The tokenizer's end token, those of the model's files, and those `named` by their texts."""
    own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    others = (_named(tokenizer, text) for text in named)
    return tuple(dict.fromkeys([*own, *end_tokens(model), *others]))


def _named(tokenizer: Tokenizer, text: str) -> int:
    ids = tokenizer.encode(text)
    if len(ids) != 1:
        raise InvalidMessage(
            f"the stop token {text!r} is {len(ids)} tokens of {tokenizer.name}, not one",
            fix="name a token of its vocabulary, such as <|im_end|>",
        )
    return ids[0]
