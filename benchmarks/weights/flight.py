"""Responses in flight through the proxy while the weights change: `FLIGHTS` of them at once, as
streams, each with the time at which every token came."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec

from llm_servers.contract import GENERATE, GenerateAnswer, GenerateRequest, SamplingParams
from rollyard.codec import learnt

FLIGHTS = 64
ANSWER_SECONDS = 300.0
_HEAD = (
    b"POST %b HTTP/1.1\r\nHost: loopback\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_EVENT = b"data: {"


class FlownToken(msgspec.Struct, frozen=True):
    """One token as it came."""

    token_id: int
    logprob: float
    at: float
    """Time at which it came, in monotonic seconds."""


class Flown(msgspec.Struct):
    """One response, of which all came unless it was lost."""

    prompt: list[int]
    tokens: list[FlownToken] = []
    versions: list[int] = []
    """Weight version of each token, as the server told it."""
    ended: bool = False

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    def is_whole(self, tokens: int) -> bool:
        return self.ended and len(self.tokens) == len(self.versions) == tokens

    def hear(self, answer: GenerateAnswer) -> None:
        now = time.monotonic()
        for choice in answer.choices:
            entries = choice.logprobs.content if choice.logprobs else None
            for token, entry in zip(choice.token_ids or (), entries or (), strict=True):
                self.tokens.append(FlownToken(token, entry.logprob, now))
            for span in choice.weight_versions or ():
                self.versions += [int(span.version)] * (span.end - span.start)
            self.ended = self.ended or choice.finish_reason == "length"


class Departed:
    """Responses under way, and those who wait until each of them has so many tokens."""

    def __init__(self, prompt: list[int], tokens: int) -> None:
        self._tokens = tokens
        # Prompts that differ, as those of several Groups do.
        self.flown = [Flown([*prompt, number]) for number in range(FLIGHTS)]
        self._heard = asyncio.Condition()

    async def fly(self, url: str, during: Callable[[], Awaitable[None]], begun: int) -> None:
        """Ask for all responses at once; `during` runs once each has `begun` tokens."""
        async with asyncio.timeout(ANSWER_SECONDS), asyncio.TaskGroup() as tasks:
            for number, flown in enumerate(self.flown):
                tasks.create_task(self._one(url, flown, f"flight{number}-0"))
            async with self._heard:
                await self._heard.wait_for(
                    lambda: all(len(flown.tokens) >= begun or flown.ended for flown in self.flown)
                )
            await during()

    async def _one(self, url: str, flown: Flown, request_id: str) -> None:
        sampling = SamplingParams(
            max_tokens=self._tokens, temperature=1.0, logprobs=0, ignore_eos=True
        )
        request = GenerateRequest(
            token_ids=flown.prompt, sampling_params=sampling, request_id=request_id, stream=True
        )
        body, address = msgspec.json.encode(request), urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(_HEAD % (GENERATE.encode(), len(body)) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 200 "):
                await self._hear(reader, flown)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it is lost, and counted as such
        finally:
            writer.close()

    async def _hear(self, reader: asyncio.StreamReader, flown: Flown) -> None:
        while size := int(await reader.readline(), 16):
            chunk = await reader.readexactly(size + 2)
            for line in chunk.splitlines():
                if line.startswith(_EVENT):
                    told = line.removeprefix(b"data: ")
                    flown.hear(msgspec.json.decode(told, type=learnt(GenerateAnswer)))
            async with self._heard:
                self._heard.notify_all()


def silence(flown: list[Flown]) -> float:
    """The longest time without a token of any response, while some were still to come."""
    times = sorted(token.at for each in flown for token in each.tokens)
    return max((after - before for before, after in itertools.pairwise(times)), default=0)
