"""What the proxy adds to each response, beside the same requests straight to the LLM server.

Both are asked at the same time, by as many clients, so that what else the machine does delays both.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from benchmarks.agents.runner import MODEL
from benchmarks.agents.sandboxes import percentile
from benchmarks.gateway.clients import Answered, WithLLM, lead
from launch.free_ports import free_port
from launch.processes import Started, module_command, start_process
from launch.readiness import answers, wait_until_ready

CLIENTS = 64
TURNS = 2
TOKEN_SECONDS = 0.1
"""A rate at which two cores keep up with the tokens of all clients."""
TOKENS = 64
WITHIN_SECONDS = TOKENS * TOKEN_SECONDS
"""Time in which the clients begin, so that they do not ask in step."""
READY_SECONDS = 60.0
HOST = "127.0.0.1"


class Added(msgspec.Struct, frozen=True):
    """What the proxy added in one round, in milliseconds."""

    p50: float
    p90: float
    first_token_p50: float
    """Until the first token; of whole answers that is their end."""
    straight_p50: float
    """What the LLM server took without it, beyond its tokens' own time."""
    cpu: float
    """Processor time of the proxy a request."""


def added(*, streams: bool, clients: int) -> Added:
    """Ask through the proxy and straight, with so many clients each."""
    template = ChatTemplate.load(MODEL)
    with _llm() as llm, _proxy(llm) as proxy:

        def led(to: str, turns: int) -> Coroutine[None, None, list[Answered]]:
            conversations = [WithLLM(template, streams=streams) for _ in range(clients)]
            return lead(to, conversations, turns, WITHIN_SECONDS)

        async def both() -> tuple[list[Answered], list[Answered]]:
            return await asyncio.gather(led(proxy.url, TURNS), led(llm, TURNS))

        asyncio.run(led(proxy.url, 1))  # what is loaded lazily is loaded now
        before = proxy.started.seconds_computed()
        proxied, straight = asyncio.run(both())
        cpu = (proxy.started.seconds_computed() - before) / len(proxied)
    return Added(
        p50=percentile(_over(proxied), 0.5) - percentile(_over(straight), 0.5),
        p90=percentile(_over(proxied), 0.9) - percentile(_over(straight), 0.9),
        first_token_p50=percentile(_first(proxied), 0.5) - percentile(_first(straight), 0.5),
        straight_p50=percentile(_over(straight), 0.5),
        cpu=cpu * 1e3,
    )


def _over(answered: list[Answered]) -> list[float]:
    return [(each.last - each.tokens * TOKEN_SECONDS) * 1e3 for each in answered]


def _first(answered: list[Answered]) -> list[float]:
    return [each.first * 1e3 for each in answered]


@contextmanager
def _llm() -> Iterator[str]:
    """The URL of an LLM server that only takes time."""
    port = free_port()
    options = (f"--port={port}", f"--token-seconds={TOKEN_SECONDS}", f"--tokens={TOKENS}")
    command = [sys.executable, "-m", "benchmarks.gateway.llm", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield f"http://{HOST}:{port}"
        finally:
            process.kill()


class _Proxy(msgspec.Struct, frozen=True):
    url: str
    started: Started


@contextmanager
def _proxy(llm: str) -> Iterator[_Proxy]:
    port = free_port()
    url = f"http://{HOST}:{port}"
    command = module_command("llm_servers.proxy", "--port", str(port), "--server", llm)
    with tempfile.TemporaryDirectory(prefix="rollyard-bench-") as name:
        started = start_process("proxy", command, Path(name) / "proxy.log")
        try:
            wait_until_ready(started, lambda: answers(f"{url}/health"), READY_SECONDS)
            yield _Proxy(url, started)
        finally:
            started.kill()
