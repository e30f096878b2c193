"""What the proxy reads in a request: no more than it takes to send it to the right server."""

import hashlib

import msgspec

from llm_servers.contract import GENERATE, REQUEST_PREFIX
from llm_servers.dialects.vllm_completions import COMPLETIONS, ENGINE_ID
from rollyard.codec import learnt

_BYTES_OF_TOKEN = 4
"""The usual length of a token in texts."""
_ENGINE_IDS = {GENERATE: REQUEST_PREFIX + "{}", COMPLETIONS: ENGINE_ID}
"""The name that vLLM's engine gives to a request, by its route."""


class AskedOfLLM(msgspec.Struct, frozen=True):
    """A request for one response."""

    path: str
    body: bytes
    trajectory: str
    """Name of its trajectory; empty if it has none."""
    prompt_tokens: int
    """Length of its prompt; an estimate where it is a text."""
    prompt: bytes
    """Digest of its prompt: the members of a Group begin with the same one."""
    engine_id: str
    """Name by which it is aborted; empty if it cannot be."""
    model: str = ""
    """Name of the model or adapter that it is for; empty if it names none."""

    def naming(self, model: str) -> "AskedOfLLM":
        """The same request, for the model of that name."""
        begun, brace, rest = self.body.partition(b"{")
        if not brace or begun.strip():
            return self  # no request: the server says so
        named = b'{"model":' + msgspec.json.encode(model) + b"," + rest
        return msgspec.structs.replace(self, body=named, model=model)


class _Fields(msgspec.Struct, frozen=True):
    """The fields of all wire forms that matter here. What they hold is not read."""

    request_id: str = ""
    model: str | None = None
    token_ids: msgspec.Raw = msgspec.Raw()
    prompt_ids: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()


def read_asked(path: str, body: bytes) -> AskedOfLLM:
    """The request in `body`. One that cannot be read is one without a name: its server says why."""
    try:
        fields = msgspec.json.decode(body, type=learnt(_Fields))
    except msgspec.MsgspecError:
        fields = _Fields()
    ids, text = bytes(fields.token_ids) or bytes(fields.prompt_ids), bytes(fields.messages)
    asked = bytes(fields.prompt)
    if asked.startswith(b"["):
        ids = ids or asked
    prompt = ids or asked or text
    tokens = prompt.count(b",") + 1 if ids else len(prompt) // _BYTES_OF_TOKEN
    name, engine_id = fields.request_id, _ENGINE_IDS.get(path, "")
    return AskedOfLLM(
        path=path,
        body=body,
        # Agent servers number the requests of a trajectory behind its key.
        trajectory=name.rpartition("-")[0],
        prompt_tokens=tokens,
        prompt=hashlib.blake2b(prompt, digest_size=8).digest(),
        engine_id=engine_id.format(name) if name else "",
        model=fields.model or "",
    )
