"""Clients that lead the same conversations with the gateway and with the LLM server itself.

They speak as little HTTP as possible, so that what is measured is the other side.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from benchmarks.gateway.llm import content_length
from llm_servers.contract import GENERATE, GenerateRequest, SamplingParams
from rollyard.errors import LaunchError
from rollyard.messages import ChatMessage, ToolSchema

_HEAD = (
    b"POST %b HTTP/1.1\r\nHost: loopback\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
QUESTION = "Mend the tests of this repository. Say what you have done."
OBSERVATION = "The build has failed: three tests of forty, see the log for the first of them."
TOOLS = tuple(
    ToolSchema(
        name=name,
        description=description,
        parameters={"type": "object", "properties": {"path": {"type": "string"}}},
    )
    for name, description in (("read", "Show a file."), ("test", "Run the tests of a directory."))
)


class Answered(msgspec.Struct, frozen=True):
    """One answer, in seconds since its request."""

    first: float
    """Time until the first text of the response."""
    last: float
    """Time until the end of the answer."""
    tokens: int


class LedConversation(Protocol):
    """The requests of one client, each of which goes on from the answer to the one before."""

    path: str
    key: str
    begun: bool
    """True once the response has a first text."""

    def request(self) -> bytes: ...

    def hear(self, answer: bytes) -> int:
        """Take an answer, or an event of one, into the conversation. Returns the tokens of the
        response if it counts them, and else 0."""
        ...

    def go_on(self) -> None: ...


class WithGateway:
    path = "/v1/chat/completions"

    def __init__(self, key: str, *, streams: bool) -> None:
        self.key = key
        self._streams = streams
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
        self._said = ""
        self.begun = False
        self._tools = [
            {"type": "function", "function": msgspec.structs.asdict(tool)} for tool in TOOLS
        ]

    def request(self) -> bytes:
        asked: dict[str, Any] = {"model": "policy", "messages": self._messages}
        asked |= {"tools": self._tools}
        if self._streams:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        return msgspec.json.encode(asked)

    def hear(self, answer: bytes) -> int:
        told = msgspec.json.decode(answer)
        for choice in told["choices"]:
            said = choice["delta"] if self._streams else choice["message"]
            self._said += said.get("content") or ""
        self.begun = bool(self._said)
        return int((told.get("usage") or {}).get("completion_tokens", 0))

    def go_on(self) -> None:
        self._messages.append({"role": "assistant", "content": self._said})
        self._messages.append({"role": "user", "content": OBSERVATION})
        self._said, self.begun = "", False


class WithLLM:
    path, key = GENERATE, ""

    def __init__(self, template: ChatTemplate, *, streams: bool) -> None:
        self._streams = streams
        self._stops = template.stop_token_ids
        self._tokens = template.prompt([ChatMessage(role="user", content=QUESTION)], TOOLS)
        follows = [ChatMessage(role="user", content=OBSERVATION)]
        self._observation = template.observation(follows, after=self._stops[0], tools=TOOLS)
        self.begun = False

    def request(self) -> bytes:
        params = SamplingParams(
            max_tokens=256, stop_token_ids=self._stops, ignore_eos=True, logprobs=0
        )
        request = GenerateRequest(token_ids=self._tokens, sampling_params=params)
        return msgspec.json.encode({**msgspec.to_builtins(request), "stream": self._streams})

    def hear(self, answer: bytes) -> int:
        told = msgspec.json.decode(answer)
        for choice in told["choices"]:
            self._tokens += choice["token_ids"]
            self.begun = True
        return int((told.get("usage") or {}).get("completion_tokens", 0))

    def go_on(self) -> None:
        self._tokens += self._observation
        self.begun = False


async def lead(
    url: str, conversations: Sequence[LedConversation], turns: int, seconds: float = 0.0
) -> list[Answered]:
    """Lead the conversations at once, so many turns each; they begin within so many seconds."""
    between = seconds / len(conversations)
    answered = await asyncio.gather(
        *(_lead(url, each, turns, at * between) for at, each in enumerate(conversations))
    )
    return [answer for each in answered for answer in each]


async def _lead(
    url: str, conversation: LedConversation, turns: int, delay: float
) -> list[Answered]:
    await asyncio.sleep(delay)
    address, answered = urlsplit(url), []
    # One connection for all of them, as the clients of agents have it.
    streams = await asyncio.open_connection(address.hostname, address.port)
    for _ in range(turns):
        answered.append(await _ask(*streams, conversation))
        conversation.go_on()
    streams[1].close()
    return answered


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, conversation: LedConversation
) -> Answered:
    body = conversation.request()
    began = time.perf_counter()
    writer.write(_HEAD % (conversation.path.encode(), conversation.key.encode(), len(body)) + body)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200 "):
        raise LaunchError(f"the benchmark was answered with {head.decode()!r}")
    if b"text/event-stream" in head:
        return await _hear(reader, conversation, began)
    tokens = conversation.hear(await reader.readexactly(content_length(head)))
    last = time.perf_counter() - began
    return Answered(last, last, tokens)


async def _hear(
    reader: asyncio.StreamReader, conversation: LedConversation, began: float
) -> Answered:
    """Hear a stream to its end, chunk by chunk; each is an event or a few."""
    first, tokens = math.nan, 0
    while size := int(await reader.readline(), 16):
        chunk = await reader.readexactly(size + 2)
        for line in chunk.splitlines():
            if line.startswith(b"data: {"):
                tokens = conversation.hear(line.removeprefix(b"data: ")) or tokens
        if conversation.begun and math.isnan(first):
            first = time.perf_counter() - began
    await reader.readline()
    return Answered(first, time.perf_counter() - began, tokens)
