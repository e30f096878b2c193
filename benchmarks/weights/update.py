"""One update of the weights with `FLIGHTS` responses under way, on LLM servers as a node has them:
behind the proxy, with the control service beside them and an orchestrator.

Whose token it is tells its logprob: those of the two checkpoints are far apart.
"""

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy
from safetensors.numpy import load_file, save_file

from benchmarks.agents.runner import MODEL
from benchmarks.deployment import new_cluster
from benchmarks.weights import truth
from benchmarks.weights.adapter import RANK, merged, random_adapter
from benchmarks.weights.flight import Departed, Flown, silence
from chaos.cluster import Cluster
from launch.free_ports import free_port
from launch.readiness import answers, wait_until_ready
from llm_servers.adapter_files import is_adapter
from llm_servers.scripted.adapters import ScriptedAdapters
from llm_servers.scripted.engine import ScriptedEngine
from llm_servers.scripted.script import Vocabulary
from rollyard import Client
from rollyard.codec import learnt
from rollyard.errors import LaunchError
from rollyard.messages import WeightReport

QUESTION = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
TOKENS = 600
BEGUN = 20
"""Tokens that each response has before the update."""
NOISE = 0.02
WEIGHTS = "model.safetensors"
READY_SECONDS = 240.0
MOST_GAP = 1e-3
"""A token whose logprob is off by more is not one of the weights that it is labelled with."""
HOST = "127.0.0.1"

Off = list[list[list[float]]]
"""Difference of each token's logprob from the true one: of each response, under each version."""


class Updated(msgspec.Struct, frozen=True):
    """What one update did to the responses under way."""

    lost: int
    wrong_versions: int
    """Tokens that are not those of the weights that they are labelled with."""
    crossed: int
    """Responses that have tokens of both versions."""
    gap: float
    """The largest difference of a token's logprob from that under its weights."""
    report: WeightReport
    silent_seconds: float
    """The longest time without a token of any response."""

    @property
    def pause_beyond_load_seconds(self) -> float:
        return self.report.paused_seconds - self.report.load_seconds


class LLMStart(msgspec.Struct, frozen=True):
    """How the LLM servers are started, and with how many of them."""

    module: str
    options: tuple[str, ...]
    servers: int
    python: Path | None = None
    """The interpreter with torch, which computes the logprobs once more; None for stand-ins."""
    adapters: tuple[str, ...] = ()
    """Further options of servers that take adapters; an adapter is what is published then."""


SCRIPTED = LLMStart("llm_servers.scripted", ("--token-seconds", "0.02"), servers=2)
SCRIPTED_ADAPTED = msgspec.structs.replace(SCRIPTED, adapters=("--enable-lora",))


def real(python: Path, *, adapted: bool = False) -> LLMStart:
    options = ("--python", str(python), "--dtype", "float32")
    adapters = ("--", "--enable-lora") if adapted else ()
    return LLMStart("llm_servers.vllm_server", options, 1, python, adapters)


def update(start: LLMStart) -> Updated:
    """Start everything, update once, and judge each token."""
    with _node(start) as node:
        directory = node.directory / "other"
        other = random_adapter(directory, MODEL) if start.adapters else _other_weights(directory)
        reports = []

        async def publish() -> None:
            reports.append(await asyncio.to_thread(node.client.update_weights, other, 1))

        departed = Departed(Vocabulary.load(MODEL).encode(QUESTION), TOKENS)
        asyncio.run(departed.fly(node.proxy, publish, BEGUN))
        if start.python is None:
            off = _off_by_script(departed.flown, (MODEL, other))
        else:
            if start.adapters:
                other = merged(other, MODEL, node.directory / "merged")
            off = _off_by_torch(departed.flown, (MODEL, other), start.python, node.directory)
    return judged(departed.flown, off, reports[0])


def judged(flown: list[Flown], off: Off, report: WeightReport) -> Updated:
    """The verdict on each token, by how far `off` it is under either version."""
    gap, wrong = 0.0, 0
    for each, found in zip(flown, off, strict=True):
        for at, version in enumerate(each.versions):
            labelled, other = found[version][at], found[1 - version][at]
            gap = max(gap, labelled)
            wrong += labelled > MOST_GAP >= other
    return Updated(
        lost=sum(not each.is_whole(TOKENS) for each in flown),
        wrong_versions=wrong,
        crossed=sum(set(each.versions) == {0, 1} for each in flown),
        gap=gap,
        report=report,
        silent_seconds=silence(flown),
    )


def _off_by_script(flown: list[Flown], checkpoints: Sequence[Path]) -> Off:
    off: Off = [[] for _ in flown]
    for checkpoint in checkpoints:
        adapted = is_adapter(checkpoint)
        adapters = ScriptedAdapters(checkpoint, RANK) if adapted else None
        model = MODEL if adapted else checkpoint
        engine = ScriptedEngine(model, token_seconds=0.0, adapters=adapters)
        for each, found in zip(flown, off, strict=True):
            scores = engine.score([*each.prompt, *each.token_ids], adapted=adapted)
            true = scores[len(each.prompt) :]
            told = (token.logprob for token in each.tokens)
            found.append([abs(a - b) for a, b in zip(true, told, strict=True)])
    return off


def _off_by_torch(
    flown: list[Flown], checkpoints: Sequence[Path], python: Path, directory: Path
) -> Off:
    told = [
        {
            "prompt": each.prompt,
            "token_ids": each.token_ids,
            "logprobs": [token.logprob for token in each.tokens],
        }
        for each in flown
    ]
    asked = directory / "flown.json"
    asked.write_bytes(msgspec.json.encode(told))
    command = [str(word) for word in (python, truth.__file__, asked, *checkpoints)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=READY_SECONDS, check=False
    )
    if ran.returncode:
        raise LaunchError(f"torch has not scored the responses: {ran.stderr[-500:]}")
    return msgspec.json.decode(ran.stdout, type=learnt(Off))


def _other_weights(checkpoint: Path) -> Path:
    """A checkpoint of the policy's shape whose weights differ a little."""
    checkpoint.mkdir()
    noise = numpy.random.default_rng(0)
    noisy = {
        name: tensor + NOISE * noise.standard_normal(tensor.shape, numpy.float32)
        for name, tensor in load_file(MODEL / WEIGHTS).items()
    }
    save_file(noisy, checkpoint / WEIGHTS, metadata={"format": "pt"})
    shutil.copy(MODEL / "config.json", checkpoint)
    return checkpoint


class _Node(msgspec.Struct, frozen=True):
    client: Client
    proxy: str
    directory: Path


@contextlib.contextmanager
def _node(start: LLMStart) -> Iterator[_Node]:
    """A node whose LLM servers have the policy's weights, as version 0."""
    with tempfile.TemporaryDirectory(prefix="rollyard-bench-") as name, new_cluster() as cluster:
        cluster.start_orchestrator(0)
        orchestrator = cluster.orchestrator_urls[0]
        servers = [f"http://{HOST}:{free_port()}" for _ in range(start.servers)]
        for url in servers:
            named = ("--model", str(MODEL), "--port", url.rpartition(":")[2])
            _start(cluster, url, start.module, *named, *start.options, *start.adapters)
        given = tuple(word for url in servers for word in ("--server", url))
        proxy, control = (f"http://{HOST}:{free_port()}" for _ in range(2))
        _start(cluster, proxy, "llm_servers.proxy", "--port", proxy.rpartition(":")[2], *given)
        model = ("--node-id", "bench", "--model", str(MODEL), "--orchestrator", orchestrator)
        at = ("--port", control.rpartition(":")[2])
        _start(cluster, control, "llm_servers", *at, *model, *given, health="/readyz")
        with Client(orchestrator) as client:
            yield _Node(client, proxy, Path(name))


def _start(cluster: Cluster, url: str, module: str, *options: str, health: str = "/health") -> None:
    started = cluster.start(f"{module}-{url.rpartition(':')[2]}", module, *options)
    wait_until_ready(started, lambda: answers(url + health), READY_SECONDS)
