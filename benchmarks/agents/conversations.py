"""Many conversations at once in one agent server: its processor time and delay a Turn, and its
memory."""

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psutil

from benchmarks.agents.llm import HOST
from benchmarks.agents.runner import Spent
from benchmarks.agents.sandboxes import percentile
from launch.free_ports import free_port
from rollyard.codec import learnt
from rollyard.errors import LaunchError

_TOKENS = 64
_ANSWER_SECONDS = 600.0
_END_SECONDS = 10.0


class Conversations(msgspec.Struct, frozen=True):
    agents: int
    turns: int
    completed: int
    cpu_milliseconds_a_turn: float
    added_milliseconds: dict[str, float]
    """Time between an answer of the LLM server and the next request, by percentile."""


class Held(msgspec.Struct, frozen=True):
    jobs: int
    sandboxes: bool
    mib: float
    """Resident memory of the agent server's process while all Jobs wait for their LLM server."""


def measure(agents: int, turns: int, llm_seconds: float) -> Conversations:
    """Let so many agents take so many turns each, at once."""
    with _llm(llm_seconds) as port:
        arguments = ("--jobs", str(agents), "--turns", str(turns))
        with _runner(port, *arguments) as process:
            spent = _spent(process)
        gaps = msgspec.json.decode(_ask(port, "/gaps"), type=learnt(list[float]))
    return Conversations(
        agents=agents,
        turns=spent.turns,
        completed=spent.completed,
        cpu_milliseconds_a_turn=round(spent.cpu_seconds / spent.turns * 1e3, 3),
        added_milliseconds={
            f"p{round(share * 100)}": round(percentile(gaps, share), 2)
            for share in (0.5, 0.9, 0.99)
        },
    )


def hold(jobs: int, *, sandboxes: bool) -> Held:
    """Hold so many Jobs at once, each waiting for its LLM server, and some with a sandbox."""
    with _llm(_ANSWER_SECONDS) as port:
        arguments = ["--jobs", str(jobs), "--turns", "1"]
        with _runner(port, *arguments, *(["--sandboxes"] if sandboxes else [])) as process:
            _ask(port, "/full", str(jobs).encode())
            resident = psutil.Process(process.pid).memory_info().rss
    return Held(jobs=jobs, sandboxes=sandboxes, mib=round(resident / 2**20, 1))


@contextmanager
def _llm(seconds: float) -> Iterator[int]:
    """The port of an LLM server that takes so long for an answer."""
    port = free_port()
    options = (f"--port={port}", f"--seconds={seconds}", f"--tokens={_TOKENS}")
    with _module("benchmarks.agents.llm", *options) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise LaunchError("the benchmark's LLM server does not start")
        yield port


@contextmanager
def _runner(port: int, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    url = f"http://{HOST}:{port}"
    with _module("benchmarks.agents.runner", "--llm", url, *options) as process:
        yield process


@contextmanager
def _module(name: str, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-m", name, *options], stdout=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def _spent(process: "subprocess.Popen[bytes]") -> Spent:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise LaunchError("the benchmark's agent server has died")
    process.wait(_END_SECONDS)
    return msgspec.json.decode(line, type=learnt(Spent))


def _ask(port: int, path: str, body: bytes = b"") -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("POST", path, body)
        return connection.getresponse().read()
    finally:
        connection.close()
