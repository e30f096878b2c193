"""How weights get into one LLM server: a checkpoint, or an adapter upon the model as started.

- An adapter is tried under another name first, while the server goes on: one that vLLM refuses
  changes nothing.
- vLLM is never told to replace an adapter "in place": each request that begins after that has its
  adapter read again for every token, from the directory that was told when it began.
"""

from pathlib import Path

from llm_servers.adapter_files import is_adapter
from llm_servers.adapter_place import AdapterPlace
from llm_servers.server import LLMServer, LLMSilent
from rollyard.errors import InvalidMessage, LLMUnavailable

_BY_TRAINER = "weights that a trainer has put there itself"


def prepare(server: LLMServer, adapter: Path) -> None:
    """Try an adapter on the server, before anything is paused. Raises `InvalidMessage` if the
    server refuses it, and `LLMUnavailable`."""
    place = _place(server)
    if place is None:
        raise InvalidMessage(
            f"the LLM server at {server.url} takes no adapters",
            fix="start it with `-- --enable-lora --max-lora-rank 32`, or merge the adapter into a "
            "checkpoint",
        )
    place.prepare(adapter)
    try:
        server.try_adapter(place.next)
    except LLMSilent:
        raise
    except LLMUnavailable as error:
        if not server.healthy():
            raise
        raise InvalidMessage(
            f"the adapter in {adapter} is refused: {error.message}", fix=_fix(error.message)
        ) from error


def load(server: LLMServer, path: Path | None) -> None:
    """Put the weights at `path` in force on a paused server; an adapter was prepared before. None
    stands for weights that the trainer has put there itself. Raises `LLMUnavailable`."""
    if path is None:
        return _leave_to_trainer(server)
    place = _place(server)
    if place is None:
        return server.load_weights(path)
    if not is_adapter(path):
        place.clear()
        place.note_base(str(path))
        return server.load_weights(path)
    place.put(path)
    if not place.note.base:
        return server.drop_adapter()
    server.load_weights(server.model())  # which drops what adapters vLLM holds, too
    return place.note_base("")


def adapter_in_force(server: LLMServer) -> str:
    """The directory of the adapter that was put in force; empty if there is none, or nobody knows
    it."""
    place = _place(server)
    try:
        return place.note.adapter if place is not None else ""
    except LLMUnavailable:
        return ""


def _leave_to_trainer(server: LLMServer) -> None:
    """Take back what adapter is in force."""
    place = _place(server)
    if place is not None:
        place.clear()
        place.note_base(_BY_TRAINER)
        server.drop_adapter()


def _place(server: LLMServer) -> AdapterPlace | None:
    path = server.adapter_place()
    return AdapterPlace(path) if path is not None else None


def _fix(reason: str) -> str:
    if "max_lora_rank" in reason:
        return "start the LLM servers with a higher --max-lora-rank, or train with a lower r"
    return "change how the adapter is trained, or merge it into a checkpoint"
