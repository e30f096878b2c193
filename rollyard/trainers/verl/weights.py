"""A rollout backend of verl's that samples nothing: the weights go to a directory, in the place of
LLM servers (verl 0.9).

    verl.register()  # in the module that actor_rollout_ref.model.external_lib names

    actor_rollout_ref.rollout.name=rollyard
    +actor_rollout_ref.rollout.custom.checkpoints=DIRECTORY

`verl.Rollouts` publishes them from there. verl imports `external_lib` in each of its processes.
"""

import importlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rollyard.errors import InvalidMessage
from rollyard.trainers.verl.config import checkpoints_of, weights_of

NAME = "rollyard"
FILE_BYTES = 4 << 30
"""Weights are gathered up to this much before they are written to a file."""


def register() -> None:
    """Make `rollout.name=rollyard` known to verl."""
    from verl.workers.rollout import base, replica

    base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.WeightWriter"
    replica.RolloutReplicaRegistry.register(NAME, no_servers)


def __getattr__(name: str) -> Any:
    # verl looks for the class here by its name; its base is verl's.
    if name == "WeightWriter":
        return weights_class()
    raise AttributeError(name)


def weights_class() -> Any:
    """What each of verl's workers has in the place of an inference engine."""
    from verl.workers.rollout.base import BaseRollout

    class WeightWriter(BaseRollout):  # type: ignore[misc]
        async def resume(self, tags: list[str]) -> None:
            """There is no engine."""

        async def release(self) -> None:
            """There is no engine."""

        async def update_weights(
            self, weights: Any, wire_format: str = "named_tensors", **given: Any
        ) -> None:
            if wire_format != "named_tensors" or given.get("peft_config") is not None:
                raise InvalidMessage(
                    "weights are published whole", fix="actor_rollout_ref.model.lora.merge=True"
                )
            step, config = given["global_steps"], self.model_config.hf_config
            if step is None or rank():
                for _ in weights:  # all ranks gather each of them
                    pass
                return
            tied = getattr(config, "tie_word_embeddings", False)
            directory = weights_of(checkpoints_of(self.config), step)
            write(directory, (each for each in weights if not tied or each[0] != "lm_head.weight"))
            config.save_pretrained(directory)
            if self.model_config.tokenizer is not None:
                self.model_config.tokenizer.save_pretrained(directory)

    return WeightWriter


def rank() -> int:
    distributed = importlib.import_module("torch.distributed")
    return int(distributed.get_rank()) if distributed.is_initialized() else 0


def no_servers() -> Any:
    """The RolloutReplica of LLM servers that verl need not start."""
    from verl.workers.rollout.replica import RolloutReplica

    class NoServers(RolloutReplica):  # type: ignore[misc]
        async def launch_servers(self) -> None:
            self._server_address = f"rollyard-{self.replica_rank}"

    return NoServers


def write(directory: Path, weights: Iterable[tuple[str, Any]]) -> None:
    """Write weights as Hugging Face does, in files of some gigabytes."""
    from safetensors.torch import save_file

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    written: dict[str, str] = {}
    gathered: dict[str, Any] = {}
    size = total = 0

    def flush() -> None:
        file = f"model-{len(set(written.values())) + 1:05}.safetensors"
        save_file(gathered, directory / file, metadata={"format": "pt"})
        written.update(dict.fromkeys(gathered, file))
        gathered.clear()

    for name, tensor in weights:
        own = tensor.detach().cpu().contiguous().clone()
        gathered[name] = own
        size += own.numel() * own.element_size()
        if size >= FILE_BYTES:
            flush()
            total, size = total + size, 0
    if gathered:
        flush()
    index = {"metadata": {"total_size": total + size}, "weight_map": written}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
