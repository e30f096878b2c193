"""An LLM server that only takes time: `python -m benchmarks.agents.llm`.

It answers every generate request after about the same time, by half longer or shorter, with the
same number of tokens, and spends as little as possible of the machine on it. `POST /gaps` answers
with the milliseconds between each answer and the next request of its trajectory: what the agent
server took for a Turn. `POST /full` answers once so many requests wait as its body says.
"""

import argparse
import asyncio
import random
import time

import msgspec

from benchmarks.http_wire import serve
from llm_servers.contract import (
    GENERATE,
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


class TimedLLM:
    """Owns the times at which each trajectory was answered last."""

    def __init__(self, seconds: float, tokens: int) -> None:
        self._seconds = seconds
        self._chance = random.Random(0)
        self._tokens = tokens
        self._answered: dict[str, float] = {}
        self._gaps: list[float] = []
        self._waiting = 0
        self._decoder = msgspec.json.Decoder(learnt(GenerateRequest))

    async def handle(self, path: str, body: bytes) -> tuple[int, bytes]:
        if path == GENERATE:
            return 200, await self._generate(body)
        if path == "/full":
            while self._waiting < int(body):
                await asyncio.sleep(0.05)
        elif path == "/gaps":
            gaps, self._gaps = self._gaps, []
            return 200, msgspec.json.encode(gaps)
        return 200, b""

    async def _generate(self, body: bytes) -> bytes:
        came = time.perf_counter()
        request = self._decoder.decode(body)
        trajectory = request.request_id.rpartition("-")[0]
        if (answered := self._answered.pop(trajectory, None)) is not None:
            self._gaps.append((came - answered) * 1e3)
        self._waiting += 1
        await asyncio.sleep(self._seconds * self._chance.uniform(0.5, 1.5))
        self._waiting -= 1
        answer = msgspec.json.encode(self._answer(request))
        self._answered[trajectory] = time.perf_counter()
        return answer

    def _answer(self, request: GenerateRequest) -> GenerateAnswer:
        ends = request.sampling_params.stop_token_ids or (_TOKEN,)  # none: it is asked what it is
        tokens = [*[_TOKEN] * (self._tokens - 1), ends[0]]
        # As certain of each as a server must be that is asked for the most likely ones.
        content = [TokenLogprob(logprob=0.0, token_id=token) for token in tokens]
        choice = Choice(
            finish_reason="stop",
            token_ids=tokens,
            logprobs=Logprobs(content=content),
            weight_versions=[VersionSpan(version="0", start=0, end=len(tokens))],
        )
        return GenerateAnswer(
            choices=[choice],
            usage=Usage(prompt_tokens=len(request.token_ids), completion_tokens=len(tokens)),
        )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.agents.llm", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="mean time of an answer")
    parser.add_argument("--tokens", type=int, required=True, help="length of each answer")
    options = parser.parse_args()
    llm = TimedLLM(options.seconds, options.tokens)
    server = await serve(HOST, options.port, llm.handle)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
