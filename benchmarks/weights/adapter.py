"""A LoRA adapter as PEFT saves one, with random weights, and the checkpoint that it amounts to."""

import json
import shutil
from pathlib import Path

import numpy
from safetensors.numpy import load_file, save_file

from llm_servers.adapter_files import CONFIG, WEIGHTS

RANK = 8
SCALING = 2.0
FACTOR_NOISE = 0.03
"""Noise of each factor: large enough that each token tells by which weights it was sampled."""
MODEL_WEIGHTS = "model.safetensors"
_PREFIX = "base_model.model."


def random_adapter(path: Path, model: Path, seed: int = 0, rank: int = RANK) -> Path:
    """Write an adapter for all projections of the model's layers."""
    path.mkdir()
    noise = numpy.random.default_rng(seed)
    factors = {}
    for name, weight in load_file(model / MODEL_WEIGHTS).items():
        if name.endswith("_proj.weight"):
            module = _PREFIX + name.removesuffix(".weight")
            outputs, inputs = weight.shape
            for factor, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                drawn = FACTOR_NOISE * noise.standard_normal(shape, numpy.float32)
                factors[f"{module}.lora_{factor}.weight"] = drawn
    save_file(factors, path / WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": SCALING * rank,
        "target_modules": sorted({name.split(".")[-3] for name in factors}),
    }
    (path / CONFIG).write_text(json.dumps(config))
    return path


def merged(adapter: Path, model: Path, path: Path) -> Path:
    """Write the checkpoint of the model with the adapter."""
    path.mkdir()
    weights, factors = load_file(model / MODEL_WEIGHTS), load_file(adapter / WEIGHTS)
    for name, first in factors.items():
        if name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight")
            change = factors[f"{module}.lora_B.weight"] @ first
            weights[f"{module.removeprefix(_PREFIX)}.weight"] += SCALING * change
    save_file(weights, path / MODEL_WEIGHTS, metadata={"format": "pt"})
    shutil.copy(model / "config.json", path)
    return path
