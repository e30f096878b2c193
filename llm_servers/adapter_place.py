"""The place of one LLM server's adapter: the directory from which vLLM reads it.

- vLLM binds each request to the name of an adapter and to this directory. What lies there is
  exchanged while generation is paused, so that requests under way go on with the new one.
- vLLM starts with an adapter that changes nothing: a server that restarts serves its model as
  started, under the name that requests ask for.
- It is on the machine of the server, whose control service writes there.
"""

import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from llm_servers.adapter_files import CONFIG, WEIGHTS, write_zero_adapter
from rollyard.codec import learnt
from rollyard.errors import LaunchError, LLMUnavailable
from serving.bind import Bind

_NEXT = "next"
_ZERO = "zero"
_NOTE = "place.json"


class PlaceNote(msgspec.Struct, frozen=True):
    """What the server serves, as far as it was given through this place."""

    base: str = ""
    """Checkpoint that is loaded in place of the model as started; empty for that model."""
    adapter: str = ""
    """Directory of the adapter in force, as it was published; empty if none is."""
    prepared: str = ""
    """The same of one that is to come."""


def place_of(bind: Bind) -> Path:
    """The place of the server that listens there."""
    name = f"rollyard-adapter-{os.getuid()}-{bind.host}-{bind.port}".replace(":", "_")
    return Path(tempfile.gettempdir()) / name


class AdapterPlace:
    """Used by one control service, which makes one change at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next = path / _NEXT

    @classmethod
    def make(cls, path: Path, model: Path) -> "AdapterPlace":
        """Make the place anew, with an adapter that changes nothing in the model. Raises
        `LaunchError` and `InvalidMessage`."""
        place = cls(path)
        try:
            if path.is_symlink() or path.exists():
                shutil.rmtree(path)  # refuses what belongs to another user, and links
            path.mkdir(mode=0o700)
            (path / _ZERO).mkdir()
            write_zero_adapter(path / _ZERO, model)
            place._take_zero()
            place._write(PlaceNote())
        except OSError as error:
            raise LaunchError(
                f"there is no place for adapters at {path}: {error}",
                fix="remove it, or name another directory for temporary files with TMPDIR",
            ) from error
        return place

    @property
    def note(self) -> PlaceNote:
        """Raises `LLMUnavailable`."""
        try:
            return msgspec.json.decode((self.path / _NOTE).read_bytes(), type=learnt(PlaceNote))
        except (OSError, msgspec.MsgspecError) as error:
            raise LLMUnavailable(
                f"the LLM server's place for adapters cannot be used: {error}",
                fix="start vLLM as `python -m llm_servers.vllm_server`, on this machine",
            ) from error

    def prepare(self, adapter: Path) -> None:
        """Copy an adapter that may be put in force. Raises `LLMUnavailable`."""
        self._change(prepared="")
        try:
            shutil.rmtree(self.next, ignore_errors=True)
            self.next.mkdir()
            for name in (CONFIG, WEIGHTS):
                shutil.copy(adapter / name, self.next)
        except OSError as error:
            raise LLMUnavailable(f"the adapter in {adapter} cannot be copied: {error}") from error
        self._change(prepared=str(adapter))

    def put(self, adapter: Path) -> None:
        """Exchange what vLLM reads for the adapter that was prepared. Raises `LLMUnavailable`."""
        if self.note.prepared != str(adapter):
            raise LLMUnavailable(f"the adapter in {adapter} was not tried on this server before")
        for name in (CONFIG, WEIGHTS):
            (self.next / name).replace(self.path / name)
        self._change(prepared="", adapter=str(adapter))

    def clear(self) -> None:
        """Exchange what vLLM reads for an adapter that changes nothing."""
        self._take_zero()
        self._change(adapter="")

    def note_base(self, base: str) -> None:
        self._change(base=base)

    def _take_zero(self) -> None:
        for name in (CONFIG, WEIGHTS):
            shutil.copy(self.path / _ZERO / name, self.path)

    def _change(self, **fields: str) -> None:
        self._write(msgspec.structs.replace(self.note, **fields))

    def _write(self, note: PlaceNote) -> None:
        written = self.path / f"{_NOTE}.new"
        written.write_bytes(msgspec.json.encode(note))
        written.replace(self.path / _NOTE)
