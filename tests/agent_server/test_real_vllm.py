"""Whole Jobs against the real vLLM: the contract that the stand-in stands in for."""

from collections.abc import Iterator

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.arithmetic import Arithmetic
from agent_server.jobs.runner import RunnerSettings
from agent_server.llm import LLMClient, LLMSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from llm_servers.server import LLMServer
from rollyard.messages import ChatMessage, Limits, Outcome, Result
from tests.agent_server.fakes import assign, make_job
from tests.agent_server.running import Running

JOBS = 16
NO_CHARACTER = "\ufffd"
"""What stands in a text for a sampled byte that is none: its token cannot be told from the text."""


@pytest.fixture
def running(vllm_llm: str, template: ChatTemplate, sandboxes: Bubblewrap) -> Iterator[Running]:
    llm = LLMClient(LLMSettings(servers=(vllm_llm,)))
    yard = Running(template, llm, Arithmetic, RunnerSettings(slots=JOBS), sandboxes)
    yield yard
    yard.runner.close(5)
    llm.close()


def run(running: Running, limits: Limits) -> list[Result]:
    for number in range(JOBS):
        running.runner.accept(assign(make_job(job_id=f"job-{number}", limits=limits)))
    return [running.results.get(timeout=60) for _ in range(JOBS)]


def test_every_job_ends_with_a_token_exact_scored_trajectory(
    running: Running, template: ChatTemplate, vllm_llm: str
) -> None:
    version = LLMServer(vllm_llm).version()
    results = run(running, Limits(max_turns=4, max_tokens=400, job_seconds=60))
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETED, "")}
    tool_users = compared = 0
    for result in results:
        trajectory = result.trajectory
        assert trajectory is not None
        assert result.reward == float(trajectory.messages[-1].content.strip() == "1776")
        if not any(NO_CHARACTER in message.content for message in trajectory.messages):
            whole = template.prompt(trajectory.messages)
            assert whole[: len(trajectory.token_ids)] == list(trajectory.token_ids)
            compared += 1
        assert {span.version for span in trajectory.weight_spans} == {version}
        assert all(
            (logprob <= 0) if sampled else (logprob == 0)
            for logprob, sampled in zip(trajectory.logprobs, trajectory.loss_mask, strict=True)
        )
        tool_users += len(trajectory.turns) > 1
    assert compared > JOBS / 2, "the policy hardly ever samples what is no character"
    assert tool_users > 0, "the policy calls its tool about half the time"


def test_the_token_limit_is_the_servers_too(running: Running, template: ChatTemplate) -> None:
    room = 3
    prompt = len(template.prompt([ChatMessage(role="user", content="37*48")]))
    results = run(running, Limits(max_turns=4, max_tokens=prompt + room))
    for result in results:
        assert result.trajectory is not None
        assert len(result.trajectory.token_ids) <= prompt + room
    assert any(result.trajectory and result.trajectory.truncated for result in results)
