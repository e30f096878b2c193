"""Tokenizers of bytes for chat templates: every text is tokens, and tokens are their text again."""

import re
from collections.abc import Sequence

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Fast

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tokenizer import Tokenizer
from agent_server.agents.tool_calls.formats import OUR_FORMATS, choose_format

_CONTROL = re.compile(
    r"<\|[^<>|\s'\"{}]+\|?>|<[^<>|\s'\"{}]+\|>|<\uff5c[^<>\s'\"{}]+\uff5c>|</?s>|\[/?[A-Z_]{3,}\]"
    r"|<(?:start|end)_of_[a-z]+>|\[e~\[|\]~b\]|<seed:[a-z]+>|<sep>|<SPECIAL_\d+>"
)
"""The spellings of control tokens that models have agreed on."""

_ROLES = [f"<|{role}|>" for role in ("system", "user", "assistant", "tool", "end")]
"""Tokens that templates put together from the names of roles."""

_ENDS = (
    "<|return|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|END_OF_TURN_TOKEN|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
)


def usual_ends(jinja: str) -> list[str]:
    """The stop tokens of the model for which a template was probably written, its eos first."""
    eos = next((end for end in _ENDS if end in jinja), "</s>")
    return [eos, *(end for end in ("<|call|>", "<|eom_id|>", "<|tool_response>") if end in jinja)]


def template_of(jinja: str, stops: Sequence[str] = ()) -> ChatTemplate:
    """The chat template on a tokenizer of bytes and of the control tokens that it spells. Raises
    `InvalidMessage`."""
    eos, *_ = stops = stops or usual_ends(jinja)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = Fast(models.BPE(vocab={byte: at for at, byte in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    controls = dict.fromkeys(["<s>", *stops, *_ROLES, *_CONTROL.findall(jinja)])
    fast.add_tokens([AddedToken(text, special=True, normalized=False) for text in controls])
    # Here, since every test process imports this module, and a second is long.
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token="<s>", eos_token=eos, chat_template=jinja
    )
    ends = [tokenizer.convert_tokens_to_ids(text) for text in stops]
    tool_calls = OUR_FORMATS[choose_format(OUR_FORMATS, "", jinja)]
    return ChatTemplate(Tokenizer(tokenizer, "this model"), ends, tool_calls)
