"""The scripted server's adapters, as vLLM has them.

- The one that requests name is read from its place when it is first needed, and kept until it is
  dropped.
- Another one is tried and forgotten. Too high a rank is refused, in vLLM's words.
"""

import hashlib
import struct
from pathlib import Path

import msgspec

from llm_servers.adapter_files import CONFIG, WEIGHTS, AdapterConfig
from llm_servers.scripted.refusals import ServerFailure
from rollyard.codec import learnt

_LENGTH = struct.Struct("<Q")


class ScriptedAdapters:
    def __init__(self, place: Path, max_rank: int) -> None:
        self.place = place
        self._max_rank = max_rank
        self._in_force: str | None = None

    @property
    def in_force(self) -> str:
        """Fingerprint of the adapter that requests name; empty if it changes nothing. Raises
        `ServerFailure`."""
        if self._in_force is None:
            self._in_force = self.read(self.place)
        return self._in_force

    def drop(self) -> None:
        self._in_force = None

    def read(self, path: Path) -> str:
        """Fingerprint of the adapter at `path`. Raises `ServerFailure`."""
        try:
            rank = msgspec.json.decode((path / CONFIG).read_bytes(), type=learnt(AdapterConfig)).r
            content = (path / WEIGHTS).read_bytes()
            (length,) = _LENGTH.unpack(content[: _LENGTH.size])
        except (OSError, struct.error, msgspec.MsgspecError) as error:
            raise ServerFailure(f"No adapter found for {path}: {error}") from error
        if rank > self._max_rank:
            raise ServerFailure(f"LoRA rank {rank} is greater than max_lora_rank {self._max_rank}.")
        changes = any(content[_LENGTH.size + length :])
        return hashlib.blake2b(content, digest_size=16).hexdigest() if changes else ""
