"""Engine settings of LLM servers, as the command line gives them."""

import re
from enum import StrEnum
from pathlib import Path

import msgspec

from llm_servers.vllm_options import check_further_options
from rollyard.errors import LaunchError

LLM_START_SECONDS = 600.0
"""Time for an LLM server to become ready. vLLM imports for half a minute, for minutes on a busy
machine, and loads large models for minutes. A server that dies is noticed at once."""

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class LLMKind(StrEnum):
    VLLM = "vllm"
    SCRIPTED = "scripted"
    """A stand-in with vLLM's contract: quick, without torch, able to do the demo's task alone."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of every LLM server of a deployment."""

    kind: LLMKind = LLMKind.VLLM
    python: Path = Path(".venv-llm/bin/python")
    """The interpreter that has vLLM."""
    dtype: str | None = None
    max_model_len: int | None = None
    """Maximum tokens of prompt and responses together; None for the LLM server's own default."""
    gpus: tuple[str, ...] = ()
    """CUDA devices, which the LLM servers share evenly; empty for the CPU."""
    start_seconds: float = LLM_START_SECONDS
    """Time for an LLM server to become ready, and for the processes that wait for it."""
    further: tuple[str, ...] = ()
    """Options that are passed on to vLLM."""

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
        """Options of each LLM server's command."""
        length = self.max_model_len
        context = () if length is None else ("--max-model-len", str(length))
        if self.kind is LLMKind.SCRIPTED:
            return context
        # On a CPU, float32 gives the same logprobs as the trainer, to rounding.
        dtype = self.dtype or ("auto" if self.gpus else "float32")
        further = ("--", *self.further) if self.further else ()
        return ("--dtype", dtype, *context, *further)

    def gpus_of(self, index: int, servers: int) -> tuple[str, ...]:
        """The devices of LLM server `index` of `servers`."""
        each = len(self.gpus) // servers
        return self.gpus[index * each : (index + 1) * each]


def listed(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def find_model(name: str) -> Path:
    """The directory of a model, given as a path or by its name on the Hugging Face hub. Raises
    `LaunchError` for a model of the hub that has not been downloaded: nothing here uses the
    network."""
    path = Path(name)
    if path.exists() or not _HUB_NAME.fullmatch(name):
        return path.resolve()
    # Imported here: it is slow, and a model given as a directory does not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise LaunchError(
            f"there is no directory {name}, and the Hugging Face cache has no model of that name",
            fix=f"download it first with `hf download {name}`, or give a directory",
        ) from error
