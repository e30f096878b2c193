"""Parked Jobs under the real vLLM: each token scores as it was sampled, by the weights it names."""

import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.protocol import Observation, Response
from agent_server.jobs.runner import RunnerSettings
from agent_server.llm import LLMClient, LLMSettings
from agent_server.sandbox.protocol import Sandbox
from llm_servers.dialects.protocol import LLMCall
from llm_servers.dialects.vllm_tokens import VLLMTokens
from llm_servers.generation import Generation, TurnRequest
from llm_servers.responses import UncheckedResponse, checked
from llm_servers.server import LLMServer
from rollyard.messages import (
    ChatMessage,
    Lease,
    Limits,
    Outcome,
    Prompt,
    Sampling,
    TokenArray,
    Trajectory,
)
from tests.agent_server.fakes import SandboxesOfNothing, assign, make_job
from tests.agent_server.real_vllm import DEADLINE_SECONDS, await_tokens, worst_gap
from tests.agent_server.running import ECHO, Running
from tests.llm_fixtures import POLICY, MakeWeights, publish

pytestmark = pytest.mark.timeout(360)  # the first test waits for vLLM to start

JOBS = 4
MAX_GAP = 1e-3


class Wanders:
    """A question that the policy knows, then weights that answer at length, see `Prompts`."""

    def __init__(self, wandering: threading.Event, waiting: threading.Semaphore) -> None:
        self._wandering, self._waiting = wandering, waiting

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        return (ChatMessage(role="user", content="37*48"),)

    def step(self, response: Response) -> Observation:
        self._waiting.release()
        assert self._wandering.wait(DEADLINE_SECONDS)
        return Observation(messages=(ChatMessage(role="tool", content="1776"),))

    def grade(self) -> float:
        return 0.0


class Prompts:
    """The prompts that were sent; a trajectory's second response ends at its token limit alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[str, list[TokenArray]] = {}
        self.second = threading.Semaphore(0)
        self._generate = VLLMTokens.generate
        monkeypatch.setattr(VLLMTokens, "generate", lambda *arguments: self.generate(*arguments))
        monkeypatch.setattr("agent_server.llm.checked", self.checked)
        # an end token, where a response was interrupted by chance, ends it as little as elsewhere
        monkeypatch.setattr(Generation, "ended_by", lambda said, _: said)

    def generate(self, dialect: VLLMTokens, request: TurnRequest, request_id: str) -> LLMCall:
        self.sent.setdefault(request.trajectory, []).append(array("i", request.token_ids))
        if len(self.sent[request.trajectory]) > 1:
            request = msgspec.structs.replace(request, stop_token_ids=())
            self.second.release()
        return self._generate(dialect, request, request_id)

    def checked(self, answer: UncheckedResponse, request: TurnRequest, **known: Any) -> Generation:
        if len(self.sent[request.trajectory]) > 1:
            request = msgspec.structs.replace(request, stop_token_ids=())
        return checked(answer, request, **known)


class RunnerAndLLM:
    def __init__(self, template: ChatTemplate, url: str) -> None:
        self.llm = LLMClient(LLMSettings(servers=(url,)))
        self.wandering, self.waiting = threading.Event(), threading.Semaphore(0)
        self.running = Running(
            template,
            self.llm,
            lambda: Wanders(self.wandering, self.waiting),
            RunnerSettings(slots=JOBS),
            SandboxesOfNothing(),
        )
        self.runner = self.running.runner


@pytest.fixture
def running(vllm_llm: str, template: ChatTemplate) -> Iterator[RunnerAndLLM]:
    running = RunnerAndLLM(template, vllm_llm)
    assert running.llm.why_not_ready() == ""
    yield running
    running.wandering.set()
    running.runner.close(5)
    running.llm.close()


def run_parked_once(
    running: RunnerAndLLM, server: LLMServer, prompts: Prompts, weights: Mapping[int, Path]
) -> list[Trajectory]:
    """Jobs whose first response is the policy's, and whose second one is begun by other weights,
    parked in its middle, and resumed under a third kind."""
    _, second, third = weights
    limits = Limits(max_turns=3, max_tokens=1200, job_seconds=120)
    sampling = Sampling(max_response_tokens=400)
    leases: list[Lease] = []
    for number in range(JOBS):
        job = make_job(job_id=f"job-{number}", instance=ECHO, limits=limits, sampling=sampling)
        leases.append(assign(job).lease)
        running.runner.accept(assign(job))
    await_all(running.waiting)
    publish(server, weights[second], second)
    running.wandering.set()
    await_all(prompts.second)
    await_tokens(server, 10 * JOBS)
    for lease in leases:
        running.runner.park(lease)
    publish(server, weights[third], third)
    for lease in leases:
        running.runner.resume(lease)
    results = [running.running.results.get(timeout=DEADLINE_SECONDS) for _ in leases]
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETED, "")}
    return [result.trajectory for result in results if result.trajectory is not None]


def await_all(semaphore: threading.Semaphore) -> None:
    for _ in range(JOBS):
        assert semaphore.acquire(timeout=DEADLINE_SECONDS)


def test_a_resumed_trajectory_scores_exactly_under_the_weights_of_each_span(
    running: RunnerAndLLM,
    vllm_control: LLMServer,
    make_weights: MakeWeights,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, prompts = vllm_control.version() or 0, Prompts(monkeypatch)
    weights = {old: POLICY, old + 1: make_weights(0.1), old + 2: make_weights(0.2)}
    trajectories = run_parked_once(running, vllm_control, prompts, weights)
    for number, trajectory in enumerate(trajectories):
        first, second = trajectory.turns
        sampled = [*range(first.start, first.end), *range(second.start, second.end)]
        assert [p for p, bit in enumerate(trajectory.loss_mask) if bit] == sampled
        spans = trajectory.weight_spans
        assert [p for span in spans for p in range(span.start, span.end)] == sampled
        assert [span.version for span in spans] == [old, old + 1, old + 2], f"job {number}"
        assert first.end < spans[1].start < spans[2].start < second.end
    for sent in prompts.sent.values():  # nothing was ever tokenised again
        longest = max(sent, key=len)
        assert all(prompt == longest[: len(prompt)] for prompt in sent)
        assert any(trajectory.token_ids[: len(longest)] == longest for trajectory in trajectories)
    gaps = {}
    for version, path in weights.items():
        vllm_control.load_weights(path)
        vllm_control.reset_prefix_cache()
        gaps[version] = worst_gap(vllm_control, trajectories, version)
    print(f"worst gap of each version: {gaps}")
    assert max(gaps.values()) <= MAX_GAP
    assert worst_gap(vllm_control, trajectories, old + 1) > 1, "the weights hardly differ"
