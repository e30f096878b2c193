"""LoRA adapters in PEFT's format: a directory with adapter_config.json and
adapter_model.safetensors.

What vLLM itself refuses, such as a rank above its own or DoRA, is left to it. What it would load
without a word is refused here: of an adapter for another model it uses what happens to fit.
"""

import re
import struct
from collections import defaultdict
from pathlib import Path

import msgspec

from llm_servers.model_files import StoredTensor, tensors_of
from rollyard.codec import learnt
from rollyard.errors import InvalidMessage
from rollyard.messages import check
from serving.model_digest import weights_digest

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_FACTOR = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_(A|B|embedding_A|embedding_B)\b")
_EXPERTS = "experts"
"""Part of the names of modules that PEFT and the model's files cut up in different ways."""
_WHOLE_NUMBERS = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
"""Types of tensors that are stored in their own shape, not packed."""
_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "qkv_proj", "q_proj", "down_proj")
"""What models call projections that vLLM has adapters for."""
_RETRAIN = (
    "train it on the model that the LLM servers were started with, or merge it into a checkpoint"
)

Shape = tuple[int, ...]


class AdapterConfig(msgspec.Struct, frozen=True):
    """The part of adapter_config.json that matters here."""

    r: int
    peft_type: str = "LORA"
    base_model_name_or_path: str | None = None


def is_adapter(path: Path) -> bool:
    """Whether there is an adapter at `path`, and no whole model."""
    return (path / CONFIG).is_file() and not (path / "config.json").is_file()


def check_adapter(path: Path, model: Path | None) -> None:
    """Raise `InvalidMessage` if the adapter at `path` is none for the model at `model`."""
    config = _read(path / CONFIG)
    check(
        config.peft_type == "LORA",
        f"the adapter in {path} is of the type {config.peft_type}, not LORA",
        "merge it into a checkpoint",
    )
    check(
        (path / WEIGHTS).is_file(),
        f"no weights of an adapter in {path}: it holds no {WEIGHTS}",
        "save it with save_pretrained, as safetensors",
    )
    if model is not None:
        _check_base(config, path, model)
        _check_fits(path, model)


def write_zero_adapter(path: Path, model: Path) -> None:
    """Write an adapter for the model that changes nothing. vLLM takes none without a module."""
    module, (outputs, inputs) = _some_projection(model)
    config = {
        "peft_type": "LORA",
        "r": 1,
        "lora_alpha": 1,
        "target_modules": [module.rpartition(".")[2]],
    }
    (path / CONFIG).write_bytes(msgspec.json.encode(config))
    header, end = {}, 0
    for factor, shape in (("A", (1, inputs)), ("B", (outputs, 1))):
        begin, end = end, end + 4 * shape[0] * shape[1]
        name = f"base_model.model.{module}.lora_{factor}.weight"
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, end)}
    told = msgspec.json.encode(header)
    (path / WEIGHTS).write_bytes(struct.pack("<Q", len(told)) + told + bytes(end))


def _some_projection(model: Path) -> tuple[str, tuple[int, int]]:
    """A module that adapters may change, with the numbers of its outputs and inputs."""
    modules: dict[str, tuple[int, int]] = {}
    for name, tensor in tensors_of(model).items():
        module, _, kind = name.rpartition(".")
        if kind == "weight" and tensor.dtype in _WHOLE_NUMBERS and len(tensor.shape) == 2:
            modules[module] = (tensor.shape[0], tensor.shape[1])
        else:
            modules.setdefault(module, (1, 1))  # packed: vLLM takes smaller factors
    for usual in _PROJECTIONS:
        for module in sorted(modules):
            if module.endswith(f".{usual}"):
                return module, modules[module]
    return f"model.layers.0.{_PROJECTIONS[0]}", (1, 1)


def _read(file: Path) -> AdapterConfig:
    try:
        return msgspec.json.decode(file.read_bytes(), type=learnt(AdapterConfig))
    except (OSError, msgspec.MsgspecError) as error:
        problem = f"{file} cannot be read: {error}"
        raise InvalidMessage(problem, fix="save the adapter again") from error


def _check_base(config: AdapterConfig, path: Path, model: Path) -> None:
    """Compare the weights that the adapter was trained on, if they are here, with the model's."""
    named = Path(config.base_model_name_or_path or "/nowhere")
    trained_on = weights_digest(named) if named.is_absolute() and named.is_dir() else ""
    check(
        not trained_on or trained_on == weights_digest(model),
        f"the adapter in {path} is for the model in {named}, which has other weights than {model}",
        _RETRAIN,
    )


def _check_fits(path: Path, model: Path) -> None:
    modules = _modules(tensors_of(model))
    factors: dict[str, dict[str, Shape]] = defaultdict(dict)
    for name, tensor in tensors_of(path).items():
        if (found := _FACTOR.match(name)) and _EXPERTS not in name:
            factors[found[1]][found[2][-1]] = tensor.shape
    unknown = sorted(module for module in factors if _tail(module) not in modules)
    check(
        not unknown,
        f"the adapter in {path} changes {_some(unknown)}, which the model in {model} has not got",
        _RETRAIN,
    )
    misfits = sorted(
        module for module, shapes in factors.items() if not _fits(shapes, modules[_tail(module)])
    )
    check(
        not misfits,
        f"the adapter in {path} is for a model of another size than {model}: see {_some(misfits)}",
        _RETRAIN,
    )


def _modules(tensors: dict[str, StoredTensor]) -> dict[str, set[Shape]]:
    """The modules with their shapes, none where they are stored in another form."""
    modules: dict[str, set[Shape]] = defaultdict(set)
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        shapes = modules[_tail(module)]
        if kind == "weight" and tensor.dtype in _WHOLE_NUMBERS:
            shapes.add(tensor.shape)
    return modules


def _tail(module: str) -> str:
    """The name from the number of its layer on: what comes before depends on the class by which the
    model was loaded."""
    parts = module.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[numbers[0] - 1 :]) if numbers else parts[-1]


def _fits(factors: dict[str, Shape], shapes: set[Shape]) -> bool:
    if factors.keys() != {"A", "B"} or any(len(shape) != 2 for shape in factors.values()):
        return False
    changed = (factors["B"][0], factors["A"][1])
    return not shapes or changed in shapes or changed[::-1] in shapes


def _some(names: list[str]) -> str:
    return " and ".join((*names[:1], *([f"{len(names) - 1} more"] if len(names) > 1 else [])))
