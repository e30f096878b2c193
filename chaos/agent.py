"""An agent server whose Jobs do nothing: everything around the Job is the real thing.

The app, the runner with its stages' deadlines, the outbox and the presence are the agent server's
own; only what a stage does is replaced by a short wait.
"""

import ctypes
import itertools
import os
import secrets
import signal
from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import cast

import msgspec

from agent_server.app import create_app
from agent_server.control.stop import StopSignal
from agent_server.environments.arithmetic import Arithmetic
from agent_server.environments.in_thread import in_thread
from agent_server.environments.protocol import EnvironmentKind
from agent_server.jobs.attempt import Attempt
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import Stages
from agent_server.metrics import Metrics
from agent_server.outbox import Outbox
from agent_server.presence import Presence, PresenceSettings
from agent_server.service import give_up
from chaos import skew, work
from chaos.history import History
from chaos.llm_node import served_version
from rollyard.http import orchestrator_at
from rollyard.messages import AgentServer, Grade, LLMEndpoint, Trajectory, WeightSpan
from serving import logs
from serving.bind import Bind
from serving.gunicorn import Service, serve

AHEAD = 1
"""Jobs that an agent server takes beyond its Slots."""
GATE_SECONDS = 0.1
"""Interval between looks at a gate, which is a file and cannot notify."""

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


class NoLLMServers:
    """The LLM servers of Jobs that need none."""

    def why_not_ready(self) -> str:
        return ""

    def endpoints(self) -> tuple[LLMEndpoint, ...]:
        return ()

    def learn(self, published: int) -> None:
        pass


class ChaosAgent(msgspec.Struct, frozen=True, kw_only=True):
    server_id: str
    bind: Bind
    url: str
    """URL that it registers with the orchestrator."""
    orchestrator: str
    slots: int
    tags: tuple[str, ...]
    heartbeat_seconds: float
    directory: Path
    """Directory of its history and of the weight version that is served."""
    log: Path
    namespace: str = ""
    """File of the network namespace that it runs in; empty for that of its parent."""
    clock: Path | None = None
    """File with the error of its clock, see `chaos.skew`; None if the clock is right."""


class NoopStages:
    """The stages of a Job that only waits."""

    environments: Mapping[str, EnvironmentKind] = {work.DATA_SOURCE: in_thread(Arithmetic)}

    def __init__(self, directory: Path, tags: Collection[str], history: History) -> None:
        self._directory = directory
        self._tags = tags
        self._history = history

    def init(self, attempt: Attempt, stop: StopSignal) -> None:
        pass

    def run(self, attempt: Attempt, stop: StopSignal) -> None:
        if not set(attempt.job.prompt.tags or ()) <= set(self._tags):
            lease = attempt.lease
            self._history.write("misplaced", job=lease.job_id, attempt=lease.attempt)
        versions = self._take_turns(attempt, stop)
        tokens = work.tokens(attempt.job.prompt.instance)
        attempt.trajectory = _trajectory(attempt.lease.attempt, versions, tokens)

    def eval(self, attempt: Attempt, stop: StopSignal) -> None:
        number = attempt.job.prompt.instance["number"]
        attempt.grade = Grade(reward=work.reward(number, attempt.job.member))

    def _take_turns(self, attempt: Attempt, stop: StopSignal) -> list[int]:
        """Take the Job's turns, and return the weight version of each."""
        lease, instance = attempt.lease, attempt.job.prompt.instance
        gate = work.gate(instance, lease.attempt)
        while gate is not None and not gate.exists():
            stop.wait(GATE_SECONDS)
            stop.check()
        versions = []
        number, member = instance.get("number", 0), attempt.job.member
        for seconds in work.turn_seconds(number, member, lease.attempt):
            self._stand(attempt, stop)
            versions.append(served_version(self._directory))
            stop.wait(seconds)
        self._stand(attempt, stop)
        if work.is_poison(instance):
            stop.wait(work.POISON_SECONDS)
            os.killpg(0, signal.SIGKILL)
        return versions

    def _stand(self, attempt: Attempt, stop: StopSignal) -> None:
        """Stand at a turn boundary, and record it if the attempt is parked there."""
        assert attempt.deadline is not None
        if attempt.parking.order.reason is None:
            return stop.check()
        seen = {"job": attempt.lease.job_id, "attempt": attempt.lease.attempt}
        self._history.write("parked", **seen)
        ended = "stopped"
        try:
            attempt.parking.stand(stop, attempt.deadline)
            ended = "resumed"
        finally:
            self._history.write(ended, **seen)

    def eval_seconds(self, attempt: Attempt, usual: float) -> float:
        return usual

    def is_graded_here(self, attempt: Attempt) -> bool:
        return False

    def clean_up(self, attempt: Attempt) -> None:
        pass


def main(agent: ChaosAgent) -> None:
    """Run the agent server in this process, which leads a session and dies with its parent."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    output = os.open(agent.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if agent.namespace:
        enter_namespace(agent.namespace)
    if agent.clock is not None:
        skew.follow(agent.clock)
    logs.configure(agent.server_id)
    serve(lambda: start(agent), agent.bind)


def enter_namespace(path: str) -> None:
    """Move this process into the network namespace whose file is at `path`."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(path).open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {path}")


def start(agent: ChaosAgent) -> Service:
    orchestrator = orchestrator_at(agent.orchestrator)
    outbox = Outbox(orchestrator, lambda assignment: runner.accept_next(assignment))
    metrics = Metrics()
    history = History(agent.directory / f"{agent.server_id}.jsonl")
    history.write("started")
    stages = cast(Stages, NoopStages(agent.directory, agent.tags, history))
    runner = JobRunner(RunnerSettings(slots=agent.slots, ahead=AHEAD), stages, metrics, outbox.put)
    myself = AgentServer(
        server_id=agent.server_id,
        url=agent.url,
        slots=agent.slots,
        ahead=AHEAD,
        environments=(work.DATA_SOURCE,),
        tags=agent.tags,
        incarnation=secrets.token_hex(8),
        secret=agent.server_id,
    )
    presence = Presence(
        orchestrator,
        myself,
        runner,
        outbox.leases,
        NoLLMServers(),
        PresenceSettings(heartbeat_seconds=agent.heartbeat_seconds),
    )
    presence.start(on_failure=give_up)
    return Service(
        create_app(agent.server_id, runner, metrics, lambda: presence.waiting_for), presence.close
    )


def _trajectory(attempt: int, versions: list[int], min_tokens: int) -> Trajectory:
    """A trajectory with one token for each turn; the last turn has the rest of `min_tokens`."""
    tokens = max(min_tokens, len(versions))
    return Trajectory(
        token_ids=array("i", [attempt]) * tokens,
        loss_mask=array("b", [1]) * tokens,
        logprobs=array("f", [-0.5]) * tokens,
        weight_spans=tuple(_spans(versions, tokens)),
        turns=(),
        messages=(),
    )


def _spans(versions: list[int], tokens: int) -> Iterator[WeightSpan]:
    start = 0
    for version, turns in itertools.groupby(versions):
        end = start + len(list(turns))
        yield WeightSpan(version=version, start=start, end=tokens if end == len(versions) else end)
        start = end
