"""Short digests of model directories, by which processes tell whether they have the same model.

- It covers the configuration, the tokenizer, the chat template and the index of the weights by
  every byte; each file of weights by its name, its size and `SAMPLES` pieces of `SAMPLE_BYTES`, the
  first and the last among them.
- It misses weights that differ only outside these pieces, and code that comes with a model.
- It does not depend on the directory's path.
"""

import hashlib
from collections.abc import Sequence
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
    """Digest of the model in a directory, 16 hexadecimal digits; empty if it holds no model."""
    return _digest(model, WHOLE)


def weights_digest(model: Path) -> str:
    """The same of its weights alone."""
    return _digest(model, ())


def _digest(model: Path, names: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    files = [model / name for name in names if (model / name).is_file()]
    weights = sorted(model.glob("*.safetensors"))
    for file in (*files, *weights):
        digest.update(f"{file.name} {file.stat().st_size} ".encode())
        digest.update(_sampled(file) if file in weights else file.read_bytes())
    return digest.hexdigest() if files or weights else ""


def _sampled(file: Path) -> bytes:
    furthest = max(0, file.stat().st_size - SAMPLE_BYTES)
    with file.open("rb") as content:
        pieces = []
        for number in range(SAMPLES):
            content.seek(furthest * number // (SAMPLES - 1))
            pieces.append(content.read(SAMPLE_BYTES))
    return b"".join(pieces)
