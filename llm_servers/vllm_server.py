"""The start of one real vLLM server: settings in, a command and its environment out.

`python -m llm_servers.vllm_server --python .venv-llm/bin/python --model DIR --port N` replaces
itself with vLLM, so that whoever started it holds vLLM's own process.

- vLLM listens on loopback alone: its control routes have no access control.
- vLLM's engine is a child that survives a kill -9 of its parent: start this in a process group of
  its own, and end the group.
- Without GPUs the model runs on the CPU. With several, it is split by tensor parallelism.
- Options after `--` go to vLLM unchanged, and take precedence where an option is given twice.
- A model that cannot be served is refused here, in one sentence, before vLLM is loaded.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from llm_servers.adapter_place import AdapterPlace, place_of
from llm_servers.checkpoint import check_model
from llm_servers.contract import BASE, POLICY
from llm_servers.model_files import names_of_modules
from llm_servers.vllm_options import check_further_options, names_modules, takes_adapters
from rollyard.errors import LaunchError, RollyardError
from serving.bind import Bind

API_SERVER = "vllm.entrypoints.openai.api_server"
"""vLLM's server, run as a module: the `vllm` console script of the CPU build does not start."""

_WHAT_FITS = "auto"

_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "PYTHONWARNINGS": "ignore",
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class VLLMSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one vLLM server."""

    python: Path
    """The interpreter that has vLLM installed."""
    model: Path
    bind: Bind
    dtype: str = "auto"
    max_model_len: int | None = None
    """Context length in tokens; None for the model's own, or as much as fits into memory."""
    block_size: int = 32
    """Tokens per block of the KV cache, a multiple of 32. A prompt shorter than one block never
    hits the prefix cache."""
    kv_cache_gib: int = 1
    """Size of the KV cache on a CPU."""
    threads: int = 1
    """Threads of the model's arithmetic on a CPU; one is enough for a tiny model."""
    seed: int = 0
    """Seed of sampling. Servers with the same seed sample alike, so each needs its own."""
    gpus: tuple[str, ...] = ()
    """Devices as in CUDA_VISIBLE_DEVICES; empty for the CPU."""
    further: tuple[str, ...] = ()
    """Options that are passed on to vLLM."""

    def __post_init__(self) -> None:
        for name in ("max_model_len", "kv_cache_gib", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise LaunchError(f"{name} must be positive, got {value}")
        if self.block_size < 1 or self.block_size % 32:
            raise LaunchError(f"block_size must be a multiple of 32, got {self.block_size}")
        check_further_options(self.further)


class Command(msgspec.Struct, frozen=True):
    """A command to execute, with variables to add to the parent's environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


def command(settings: VLLMSettings) -> Command:
    """The command of one vLLM server."""
    arguments = [
        str(settings.python),
        *("-m", API_SERVER),
        *("--model", str(settings.model)),
        *("--served-model-name", BASE if takes_adapters(settings.further) else POLICY),
        *("--host", settings.bind.host),
        *("--port", str(settings.bind.port)),
        *("--dtype", settings.dtype),
        *("--max-model-len", str(settings.max_model_len or _WHAT_FITS)),
        *("--max-num-seqs", "64"),
        *("--seed", str(settings.seed)),
        "--enable-scale-out",  # the token-in, token-out routes
        "--disable-uvicorn-access-log",
        *("--generation-config", "vllm"),  # the model's own sampling defaults would change logprobs
        *("--logprobs-mode", "processed_logprobs"),  # of the distribution that is sampled from
    ]
    environment = {"VLLM_SERVER_DEV_MODE": "1"}  # the control routes: pause, reload_weights, ...
    device = _on_gpus(settings) if settings.gpus else _on_cpu(settings)
    adapters = _adapters(settings) if takes_adapters(settings.further) else Command((), {})
    return Command(
        (*arguments, *device.arguments, *adapters.arguments, *settings.further),
        environment | device.environment | adapters.environment | _OFFLINE | _QUIET,
    )


def _adapters(settings: VLLMSettings) -> Command:
    """What lets the control service exchange the adapter that requests for the policy have."""
    policy = {"name": POLICY, "path": str(place_of(settings.bind))}
    # Where the output head may have an adapter, vLLM 0.32 dies on CPUs when a prompt's logprobs are
    # asked for beside any other request.
    body = () if names_modules(settings.further) else names_of_modules(settings.model)
    return Command(
        (
            *(("--lora-target-modules", *body) if body else ()),
            *("--lora-modules", msgspec.json.encode(policy).decode()),
        ),
        {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
    )


def _on_cpu(settings: VLLMSettings) -> Command:
    return Command(
        (
            *("--block-size", str(settings.block_size)),
            *("--distributed-executor-backend", "uni"),
            "--enforce-eager",  # the policy is small: compiling it costs more than it saves
        ),
        {
            "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib),
            # Let the engine run the model in its own process. A separate worker would import vLLM
            # again (5 s, 460 MB) only to bind threads to cores, which one thread does not need.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": str(settings.threads),
            # Counting ranks is the one function still compiled under --enforce-eager: compiling it
            # needs a C++ compiler and makes the first request with logprobs wait for it, 3 to 18 s.
            "TORCH_COMPILE_DISABLE": "1",
        },
    )


def _on_gpus(settings: VLLMSettings) -> Command:
    return Command(
        ("--tensor-parallel-size", str(len(settings.gpus))),
        {"CUDA_VISIBLE_DEVICES": ",".join(settings.gpus)},
    )


def check_python(python: Path) -> None:
    """Raise `LaunchError` if there is no interpreter at `python`."""
    if not os.access(python, os.X_OK):
        raise LaunchError(
            f"no Python interpreter at {python}",
            fix="give --python the interpreter of the environment that has vLLM",
        )


def parse_arguments(arguments: list[str]) -> VLLMSettings:
    parser = argparse.ArgumentParser(prog="python -m llm_servers.vllm_server", description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="interpreter that has vLLM")
    parser.add_argument("--model", type=Path, required=True, help="directory with config.json")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--dtype", default="auto", help="float32 for tiny models")
    parser.add_argument("--max-model-len", type=int, help="default: the model's, if it fits")
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--kv-cache-gib", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="give each of several servers its own")
    parser.add_argument("--gpus", default="", help="CUDA devices, comma-separated; none: the CPU")
    parser.add_argument("further", nargs="*", metavar="-- OPTIONS", help="options passed to vLLM")
    values = vars(parser.parse_args(arguments))
    values["gpus"] = tuple(filter(None, values["gpus"].split(",")))
    values["further"] = tuple(values["further"])
    bind = Bind(host=values.pop("host"), port=values.pop("port"))
    return VLLMSettings(bind=bind, **values)


def main(arguments: list[str]) -> NoReturn:
    try:
        settings = parse_arguments(arguments)
        check_python(settings.python)
        check_model(settings.model)
        if takes_adapters(settings.further):
            AdapterPlace.make(place_of(settings.bind), settings.model)
    except RollyardError as error:
        print(f"cannot start vLLM: {error}", file=sys.stderr)
        sys.exit(2)
    start = command(settings)
    os.execve(start.arguments[0], start.arguments, os.environ | start.environment)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
