"""Which model a directory holds, as a short digest that every process makes for itself.

- It covers the configuration, the tokenizer, the chat template and the index of the weights by
  every byte; each file of weights by its name, its size and `SAMPLES` pieces of `SAMPLE_BYTES`, the
  first and the last among them.
- It does not cover weights that differ between these pieces alone, nor code that a model brings.
- It does not depend on where the directory is.
"""

import hashlib
from pathlib import Path

WHOLE = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "model.safetensors.index.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
SAMPLES = 8
SAMPLE_BYTES = 64 * 1024


def model_digest(model: Path) -> str:
    """Empty for a directory that holds nothing of a model."""
    digest = hashlib.blake2b(digest_size=8)
    files = [model / name for name in WHOLE if (model / name).is_file()]
    weights = sorted(model.glob("*.safetensors"))
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size} ".encode())
        digest.update(file.read_bytes())
    for file in weights:
        digest.update(f"{file.name} {file.stat().st_size} ".encode())
        digest.update(_sampled(file))
    return digest.hexdigest() if files or weights else ""


def _sampled(file: Path) -> bytes:
    furthest = max(0, file.stat().st_size - SAMPLE_BYTES)
    with file.open("rb") as content:
        pieces = []
        for number in range(SAMPLES):
            content.seek(furthest * number // (SAMPLES - 1))
            pieces.append(content.read(SAMPLE_BYTES))
    return b"".join(pieces)
