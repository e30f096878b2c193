"""Agents of other people, as they are published, at work in sandboxes behind the gateway.

They are those of examples/agents, and are slow to begin: their packages take seconds to import.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.runner import RunnerSettings
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.sandbox.bubblewrap import Bubblewrap
from rollyard.messages import Limits, Outcome, Result, Sampling
from tests.agent_server.fakes import EchoEnvironment, Says, assign, make_job
from tests.agent_server.running import Running
from tests.llm_fixtures import POLICY

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents"
SECONDS = 240.0
LIMITS = Limits(max_turns=8, max_tokens=16_384, job_seconds=SECONDS)


def bash(command: str) -> str:
    called = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"<tool_call>\n{called}\n</tool_call>"


ANSWERS = bash("echo $((12*13)) > answer.txt")
SAYS = {
    "MiniSweAgent": (ANSWERS, bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")),
    "OpenAIAgent": (ANSWERS, "It is done."),
    "AnthropicAgent": (ANSWERS, "It is done."),
}
"""What the policy says to each agent, turn by turn."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with closing(Gateway()) as opened:
        yield opened


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvironmentHost]:
    """The environments of the example, as where its package is installed."""
    monkeypatch.syspath_prepend(EXAMPLE)
    points = (EntryPoint(name, f"others_agents.environments:{name}", "") for name in SAYS)
    with closing(EnvironmentHost(tuple(points), ProcessLimits())) as opened:
        yield opened


def work(
    agent: str, policy: Says, host: EnvironmentHost, sandboxes: Bubblewrap, gateway: Gateway
) -> Result:
    """The Result of a row on which the agent has worked."""
    row = {"data_source": agent, "question": "12*13", "answer": "156"}
    job = make_job(instance=row, limits=LIMITS, sampling=Sampling(max_response_tokens=400))
    template = ChatTemplate.load(POLICY, tool_calls="hermes")
    environments = host.environments(NO_REWARDS)
    running = Running(
        template, policy, EchoEnvironment, RunnerSettings(slots=1), sandboxes, environments, gateway
    )
    running.runner.accept(assign(job))
    try:
        return running.results.get(timeout=SECONDS + 30)
    finally:
        running.runner.close(5)


@pytest.mark.parametrize("agent", SAYS)
def test_the_agent_works_with_the_policy_and_its_trajectory_is_exact(
    agent: str, host: EnvironmentHost, sandboxes: Bubblewrap, gateway: Gateway
) -> None:
    template = ChatTemplate.load(POLICY, tool_calls="hermes")
    policy = Says(template, *SAYS[agent], context_tokens=LIMITS.max_tokens)
    result = work(agent, policy, host, sandboxes, gateway)
    assert result.outcome is Outcome.COMPLETED, result.error
    assert result.grade is not None
    assert result.grade.reward == 1.0
    trajectory = result.trajectory
    assert trajectory is not None
    assert (trajectory.earlier, trajectory.truncated) == ((), False)
    # Each request was the one before it, the response to that, and what came behind.
    assert len(policy.requests) == len(trajectory.turns) == 2
    for request, turn in zip(policy.requests, trajectory.turns, strict=True):
        assert list(request.token_ids) == list(trajectory.token_ids[: turn.start])
    assert [each.role for each in trajectory.messages if each.role == "tool"] == ["tool"]
