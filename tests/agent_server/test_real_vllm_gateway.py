"""Clients of the gateway whose responses the real vLLM samples, while its weights change."""

from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import msgspec
import pytest
import requests

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Opening
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.session import GatewaySession
from agent_server.llm import LLMClient, LLMSettings
from llm_servers.generation import Generation, TurnRequest
from llm_servers.server import LLMServer
from rollyard.messages import Limits, Sampling
from tests.agent_server.fakes import EchoEnvironment, make_job
from tests.agent_server.real_vllm import DEADLINE_SECONDS, await_tokens, worst_gap
from tests.llm_fixtures import POLICY, MakeWeights, publish

pytestmark = pytest.mark.timeout(360)  # the first test waits for vLLM to start

MAX_GAP = 1e-3
ROUTES = ("chat/completions", "responses", "messages")


class Endless:
    """The real policy, whose responses end at their limit alone: each is under way for a while."""

    def __init__(self, llm: LLMClient) -> None:
        self._llm = llm
        self.context_tokens = llm.context_tokens

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        return self._llm.generate(msgspec.structs.replace(request, stop_token_ids=()), stop)


@pytest.fixture
def session(vllm_llm: str, template: ChatTemplate) -> Iterator[GatewaySession]:
    limits = Limits(max_turns=6, max_tokens=1500, job_seconds=DEADLINE_SECONDS)
    job = make_job(limits=limits, sampling=Sampling(max_response_tokens=200))
    with closing(LLMClient(LLMSettings(servers=(vllm_llm,)))) as llm, closing(Gateway()) as gateway:
        assert llm.why_not_ready() == ""
        task = Task(
            name="t",
            job=job,
            opening=Opening(messages=()),
            prompt=(),
            environment=InThread(EchoEnvironment),
            policy=Endless(llm),
            template=template,
        )
        with gateway.open(task, StopSignal()) as opened:
            yield opened


def ask(session: GatewaySession, route: str, said: list[Any]) -> list[Any]:
    """The conversation once the policy has answered, as this route's clients keep it."""
    told = "input" if route == "responses" else "messages"
    answer = requests.post(
        f"{session.url}/v1/{route}",
        headers={"Authorization": f"Bearer {session.key}"},
        json={told: said, "max_tokens": 200},
        timeout=DEADLINE_SECONDS,
    )
    answer.raise_for_status()
    heard = answer.json()
    if route == "responses":
        return [*said, *heard["output"]]
    if route == "messages":
        return [*said, {"role": "assistant", "content": heard["content"]}]
    return [*said, heard["choices"][0]["message"]]


def test_each_trace_scores_as_it_was_sampled_across_updates_in_the_middle_of_responses(
    session: GatewaySession, vllm_control: LLMServer, make_weights: MakeWeights
) -> None:
    old = vllm_control.version() or 0
    weights = {old: POLICY, old + 1: make_weights(0.1), old + 2: make_weights(0.2)}
    said = {route: [{"role": "user", "content": f"{route}: 37*48"}] for route in ROUTES}
    with ThreadPoolExecutor(len(ROUTES)) as clients:
        for version in (old + 1, old + 2):
            asked = {route: clients.submit(ask, session, route, said[route]) for route in ROUTES}
            await_tokens(vllm_control, 20 * len(ROUTES))
            publish(vllm_control, weights[version], version)
            for route, answer in asked.items():
                said[route] = [*answer.result(), {"role": "user", "content": "Go on."}]
    sequences = session.trajectory(truncated=False).sequences
    assert [len(each.turns) for each in sequences] == [2] * len(ROUTES)
    for each in sequences:
        versions = [span.version for span in each.weight_spans]
        assert versions == [old, old + 1, old + 1, old + 2]
        sampled = array("b", each.loss_mask)
        places = [place for span in each.weight_spans for place in range(span.start, span.end)]
        assert places == [place for place, bit in enumerate(sampled) if bit]
    gaps = {}
    for version, path in weights.items():
        vllm_control.load_weights(path)
        vllm_control.reset_prefix_cache()
        gaps[version] = worst_gap(vllm_control, sequences, version)
    print(f"worst gap of each version: {gaps}")
    assert max(gaps.values()) <= MAX_GAP
    assert worst_gap(vllm_control, sequences, old + 1) > 1, "the weights hardly differ"
