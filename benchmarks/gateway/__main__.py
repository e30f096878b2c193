"""`python -m benchmarks.gateway`: requests through the gateway and straight to the LLM server, in
turn, round by round.

Both are asked the same: the same conversations, with the same tokens at the same rate. What is
added is the time over the LLM server's own, beside that of asking it directly. The last line of
stdout is one JSON object.
"""

import argparse
import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import msgspec
import psutil

from agent_server.agents.chat_template import ChatTemplate
from benchmarks.agents.runner import MODEL
from benchmarks.agents.sandboxes import percentile
from benchmarks.gateway.clients import Answered, WithGateway, WithLLM, lead
from benchmarks.gateway.llm import HOST
from benchmarks.gateway.server import Reached
from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_most, figures, say
from launch.free_ports import free_port
from rollyard.codec import learnt
from rollyard.errors import LaunchError

CLIENTS = 64
TURNS = 4
TOKEN_SECONDS = 0.05
"""A rate at which two cores keep up with the tokens of all clients."""
TOKENS = 64
WITHIN_SECONDS = TOKENS * TOKEN_SECONDS
"""Time in which the clients begin, so that they do not ask in step."""
IDLE_SECONDS = 1.0


class WayTimes(msgspec.Struct, frozen=True):
    """What one way took for all requests, in milliseconds."""

    first: list[float]
    """Time until the first text of each response, over the LLM server's own."""
    last: list[float]
    """Time until the end of each answer, over the LLM server's own."""
    cpu: float = 0.0
    """Processor time of the gateway's process a request."""


class GatewayRounds:
    """Measurements of all rounds."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._template = ChatTemplate.load(MODEL)
        self.whole: list[tuple[WayTimes, WayTimes]] = []
        """Through the gateway, and straight to the LLM server."""
        self.streamed: list[tuple[WayTimes, WayTimes]] = []

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("whole answers", lambda: self.whole.append(self._both(streams=False))),
            ("streams", lambda: self.streamed.append(self._both(streams=True))),
        ]

    def _both(self, *, streams: bool) -> tuple[WayTimes, WayTimes]:
        with _llm() as url:
            return self._gateway(url, streams=streams), self._straight(url, streams=streams)

    def _gateway(self, llm: str, *, streams: bool) -> WayTimes:
        with _module("server", f"--llm={llm}", f"--sessions={self._clients}") as process:
            assert process.stdout is not None
            reached = msgspec.json.decode(process.stdout.readline(), type=learnt(Reached))
            conversations = [WithGateway(key, streams=streams) for key in reached.keys]
            asyncio.run(lead(reached.url, conversations[:1], 1))  # it finds out what the LLM is
            idle = _cpu_seconds(process)
            time.sleep(IDLE_SECONDS)
            before, began = _cpu_seconds(process), time.monotonic()
            answered = asyncio.run(lead(reached.url, conversations, TURNS, WITHIN_SECONDS))
            idle = (before - idle) / IDLE_SECONDS * (time.monotonic() - began)
            cpu = (_cpu_seconds(process) - before - idle) / len(answered)
        return _over(answered, cpu)

    def _straight(self, llm: str, *, streams: bool) -> WayTimes:
        conversations = [WithLLM(self._template, streams=streams) for _ in range(self._clients)]
        return _over(asyncio.run(lead(llm, conversations, TURNS, WITHIN_SECONDS)))


def _over(answered: list[Answered], cpu: float = 0.0) -> WayTimes:
    return WayTimes(
        first=[(each.first - TOKEN_SECONDS) * 1e3 for each in answered],
        last=[(each.last - each.tokens * TOKEN_SECONDS) * 1e3 for each in answered],
        cpu=cpu * 1e3,
    )


def _added(rounds: list[tuple[WayTimes, WayTimes]], times: str, share: float = 0.5) -> list[float]:
    """The milliseconds that the gateway adds, in each round."""
    return [
        percentile(getattr(gateway, times), share) - percentile(getattr(straight, times), share)
        for gateway, straight in rounds
    ]


def goals(rounds: GatewayRounds) -> list[Goal]:
    return [
        at_most("gateway_added_p50_ms", median(_added(rounds.whole, "last")), 3),
        at_most("gateway_first_token_added_ms", median(_added(rounds.streamed, "first")), 5),
        at_most("gateway_cpu_ms_a_request", median(each.cpu for each, _ in rounds.whole), 1.5),
    ]


def measured(rounds: GatewayRounds) -> dict[str, object]:
    return {
        "clients": CLIENTS,
        "tokens": TOKENS,
        "token_milliseconds": TOKEN_SECONDS * 1e3,
        "added_ms": {
            f"p{round(share * 100)}": figures(_added(rounds.whole, "last", share), 2)
            for share in (0.5, 0.9)
        },
        "first_token_added_ms": {
            f"p{round(share * 100)}": figures(_added(rounds.streamed, "first", share), 2)
            for share in (0.5, 0.9)
        },
        "end_of_stream_added_ms": figures(_added(rounds.streamed, "last"), 2),
        "straight_ms": figures([median(each.last) for _, each in rounds.whole], 2),
        "cpu_ms_a_request": figures([each.cpu for each, _ in rounds.whole], 3),
        "cpu_ms_a_stream": figures([each.cpu for each, _ in rounds.streamed], 3),
    }


@contextmanager
def _llm() -> Iterator[str]:
    """The URL of an LLM server."""
    port = free_port()
    options = (f"--port={port}", f"--token-seconds={TOKEN_SECONDS}", f"--tokens={TOKENS}")
    with _module("llm", *options) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise LaunchError("the benchmark's LLM server does not start")
        yield f"http://{HOST}:{port}"


@contextmanager
def _module(name: str, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", f"benchmarks.gateway.{name}", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def _cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="clients, times this")
    options = parser.parse_args()
    machine, rounds = this_machine(), GatewayRounds(max(2, math.ceil(CLIENTS * options.scale)))
    with progress_bar() as bar:
        task = bar.add_task("", total=options.rounds * len(rounds.steps()))
        for _ in range(options.rounds):
            for name, step in rounds.steps():
                bar.update(task, description=name)
                step()
                bar.advance(task)
    say("gateway", machine, goals(rounds), measured(rounds))


if __name__ == "__main__":
    main()
