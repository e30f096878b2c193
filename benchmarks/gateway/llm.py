"""An LLM server that only takes time: `python -m benchmarks.gateway.llm`.

It gives every request its tokens at one rate, whole or as a stream, in the form of vLLM's token
route, and spends as little as possible of the machine on it. The length of a response depends on
its prompt alone, so whoever asks the same is answered the same.
"""

import argparse
import asyncio
import random

import msgspec

from llm_servers.contract import (
    Choice,
    GenerateAnswer,
    GenerateRequest,
    Logprobs,
    TokenLogprob,
    Usage,
    VersionSpan,
)
from rollyard.codec import learnt

HOST = "127.0.0.1"
_TOKEN = 65
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n"


class PacedLLM:
    """A server of so many seconds a token, whose responses have so many tokens on average."""

    def __init__(self, token_seconds: float, tokens: int) -> None:
        self._token_seconds = token_seconds
        self._tokens = tokens
        self._decoder = msgspec.json.Decoder(learnt(GenerateRequest))

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            open_ = True
            while open_:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(content_length(head))
                if not head.startswith(b"post "):
                    _say(writer, 200 if head.startswith(b"get /health ") else 404)
                    continue
                request = self._decoder.decode(body)
                answer = self._stream if request.stream else self._whole
                await answer(writer, request, self._response(request))
                open_ = b"connection: close" not in head
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _whole(
        self, writer: asyncio.StreamWriter, request: GenerateRequest, given: list[int]
    ) -> None:
        await asyncio.sleep(self._token_seconds * len(given))
        body = msgspec.json.encode(_answer(request, given, ended=True))
        writer.write(_HEAD % (b"application/json", b"Content-Length: %d\r\n" % len(body)) + body)

    async def _stream(
        self, writer: asyncio.StreamWriter, request: GenerateRequest, given: list[int]
    ) -> None:
        writer.write(_HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked\r\n"))
        clock = asyncio.get_running_loop().time
        began = clock()
        for number, token in enumerate(given, 1):
            await asyncio.sleep(began + number * self._token_seconds - clock())
            ended = number == len(given)
            answer = _answer(request, [token], ended=ended, of=len(given))
            writer.write(_chunk(b"data: " + msgspec.json.encode(answer) + b"\n\n"))
        usage = GenerateAnswer(choices=[], usage=_usage(request, given))
        writer.write(_chunk(b"data: " + msgspec.json.encode(usage) + b"\n\n"))
        writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _response(self, request: GenerateRequest) -> list[int]:
        chance = random.Random(len(request.token_ids))
        tokens = max(2, round(self._tokens * chance.uniform(0.5, 1.5)))
        if request.sampling_params.max_tokens is not None:
            tokens = min(tokens, request.sampling_params.max_tokens)
        # Without any, it is asked what it is.
        ends = request.sampling_params.stop_token_ids or (_TOKEN,)
        return [*[_TOKEN] * (tokens - 1), ends[0]]


def _answer(
    request: GenerateRequest, tokens: list[int], *, ended: bool, of: int | None = None
) -> GenerateAnswer:
    length = len(tokens) if of is None else of
    content = [TokenLogprob(logprob=0.0, token_id=token, rank=1) for token in tokens]
    choice = Choice(
        finish_reason="stop" if ended else None,
        token_ids=tokens,
        logprobs=Logprobs(content=content),
        weight_versions=[VersionSpan(version="0", start=0, end=length)] if ended else None,
    )
    usage = None if of is not None else _usage(request, tokens)
    return GenerateAnswer(choices=[choice], usage=usage)


def _usage(request: GenerateRequest, tokens: list[int]) -> Usage:
    return Usage(prompt_tokens=len(request.token_ids), completion_tokens=len(tokens))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _say(writer: asyncio.StreamWriter, status: int) -> None:
    """Answer a question about the server, which is healthy and has no control routes."""
    writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: 0\r\n\r\n" % status)


def content_length(head: bytes) -> int:
    """The length of a body, which the head in front of it tells in small letters."""
    at = head.find(b"content-length:")
    return int(head[at + 15 : head.find(b"\r", at)]) if at >= 0 else 0


async def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gateway.llm", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token-seconds", type=float, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="mean length of a response")
    options = parser.parse_args()
    llm = PacedLLM(options.token_seconds, options.tokens)
    server = await asyncio.start_server(llm.talk, HOST, options.port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
