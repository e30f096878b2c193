"""What each LLM server is told of its model and its machine, as the command line has it."""

import re
from enum import StrEnum
from pathlib import Path

import msgspec

from llm_servers.vllm_options import check_further_options
from rollyard.errors import LaunchError

LLM_START_SECONDS = 600.0
"""vLLM imports for half a minute on a quiet machine, several times that on a busy one, and loads
large models for minutes. One that dies is noticed at once: only one that hangs is waited for."""

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class LLMKind(StrEnum):
    VLLM = "vllm"
    SCRIPTED = "scripted"
    """The stand-in with vLLM's contract: quick, needs no torch, knows only the demo's task."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of every LLM server of a deployment."""

    kind: LLMKind = LLMKind.VLLM
    python: Path = Path(".venv-llm/bin/python")
    """The interpreter that has vLLM."""
    dtype: str | None = None
    max_model_len: int | None = None
    """Tokens of prompt and responses together; None: what the LLM server holds right."""
    gpus: tuple[str, ...] = ()
    """CUDA devices, which the LLM servers share evenly; none: the CPU."""
    start_seconds: float = LLM_START_SECONDS
    """For an LLM server to be ready, and for the processes that wait for it."""
    further: tuple[str, ...] = ()
    """Options of vLLM's own."""

    def __post_init__(self) -> None:
        if self.kind is LLMKind.SCRIPTED and (self.dtype or self.gpus or self.further):
            raise LaunchError(
                "the scripted LLM server computes nothing: it knows no dtype, GPUs or vLLM options",
                fix="leave them out, or use --llm vllm",
            )
        if self.further and not self.further[0].startswith("-"):
            raise LaunchError(
                f"{self.further[0]!r} is not an option of vLLM",
                fix="give options of vLLM's own last, after `--`, like `-- --max-num-seqs 128`",
            )
        check_further_options(self.further)

    @property
    def options(self) -> tuple[str, ...]:
        """Of each LLM server's command."""
        length = self.max_model_len
        context = () if length is None else ("--max-model-len", str(length))
        if self.kind is LLMKind.SCRIPTED:
            return context
        # A policy small enough for a CPU is compared with its trainer to the last digit.
        dtype = self.dtype or ("auto" if self.gpus else "float32")
        further = ("--", *self.further) if self.further else ()
        return ("--dtype", dtype, *context, *further)

    def gpus_of(self, index: int, servers: int) -> tuple[str, ...]:
        """The share of one LLM server of so many."""
        each = len(self.gpus) // servers
        return self.gpus[index * each : (index + 1) * each]


def listed(text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def find_model(name: str) -> Path:
    """The directory of a model that is named by it, or by its name on the Hugging Face hub: then it
    must have been downloaded before, as nothing here reaches for the network."""
    path = Path(name)
    if path.exists() or not _HUB_NAME.fullmatch(name):
        return path.resolve()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise LaunchError(
            f"there is no directory {name}, and the Hugging Face cache has no model of that name",
            fix=f"download it first with `hf download {name}`, or give a directory",
        ) from error
