"""The tiny policy's tokenizer: 256 bytes, five special tokens, a ChatML template.

Token id 0..255 is the byte's place in GPT-2's printable byte alphabet; the special tokens follow.
"""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PADDING = "<|endoftext|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (PADDING, "<|im_start|>", TURN_END, "<tool_call>", "</tool_call>")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that never merges: one token a byte, so numbers are spelled digit by digit."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bare,
        pad_token=PADDING,
        eos_token=TURN_END,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(directory: Path) -> None:
    byte_tokenizer().save_pretrained(directory)
