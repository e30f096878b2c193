"""Environments of the verifiers library at work with a policy behind the gateway: of one turn, of
several turns, and with tools. Those of three packages are as they are published.

Each episode takes seconds: the library is imported anew in its sandbox.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import in_thread
from agent_server.environments.verifiers.environment import Verifiers
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.runner import RunnerSettings
from agent_server.jobs.stages import SharedPolicy
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import LLMUnavailable
from rollyard.messages import Blame, Limits, Outcome, Result, Sampling
from tests.agent_server.fakes import Fails, Says, assign, make_job
from tests.agent_server.running import Running
from tests.llm_fixtures import POLICY, ROOT
from tests.real_environments.verifiers_rows import (
    PYTHON,
    REASONING,
    SECONDS,
    reward_without_rollyard,
    verifiers_rows,
)

PAGE = (ROOT / "docs" / "environments.md").read_text()


def row(env: str, arguments: dict[str, Any], question: str, **fields: Any) -> dict[str, Any]:
    asked = {"prompt": [{"role": "user", "content": question}], "example_id": 0}
    return {"data_source": "verifiers", "env": env, "args": arguments, "input": asked | fields}


COUNTING = row(
    REASONING,
    {"gym": "leg_counting", "num_train_examples": 2, "num_eval_examples": 1},
    "How many legs are there in total?",
    answer="0",  # its number in the environment's own dataset: 500 legs
)
GUESSING = row("guess_number", {"rows": 1}, "Guess a number.", answer="50")
SHOPPING = row("shopping", {"rows": 1}, "What do an apple and a bread cost?", answer="10")

LEGS: dict[str, Any] = {"gym": "leg_counting", "num_train_examples": 2, "num_eval_examples": 1}
DEBATE: dict[str, Any] = {"n_items": 1, "passage_chars": 300}
POEM: dict[str, Any] = {"forms": ["lipogram"], "topics_per_form": 1}
CITED = "<claim>It is so.</claim><cite>There will, sooner or later, be problems</cite>"


def price(item: str) -> str:
    called = json.dumps({"name": "price", "arguments": {"item": item}})
    return f"<tool_call>\n{called}\n</tool_call>"


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate.load(POLICY, tool_calls="hermes")


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Bubblewrap]:
    with closing(Bubblewrap(SandboxSettings())) as made:
        yield made


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with closing(Gateway()) as opened:
        yield opened


class Machine:
    """What plays a row."""

    def __init__(self, template: ChatTemplate, sandboxes: Bubblewrap, gateway: Gateway) -> None:
        self.template, self._sandboxes, self._gateway = template, sandboxes, gateway

    def begin(self, policy: SharedPolicy) -> Running:
        environments = {"verifiers": in_thread(Verifiers)}
        settings = RunnerSettings(slots=1)
        return Running(
            self.template, policy, Verifiers, settings, self._sandboxes, environments, self._gateway
        )

    def play(self, instance: dict[str, Any], *says: str, **limits: int) -> Result:
        """The Result of a row with a policy that says this."""
        self.policy = Says(self.template, *says)
        return self.work(self.policy, instance, **limits)

    def work(self, policy: SharedPolicy, instance: dict[str, Any], **limits: int) -> Result:
        given = Limits(
            max_turns=limits.get("max_turns", 8),
            max_tokens=limits.get("max_tokens", 4096),
            job_seconds=SECONDS,
        )
        sampling = Sampling(max_response_tokens=400)
        running = self.begin(policy)
        running.runner.accept(assign(make_job(instance=instance, limits=given, sampling=sampling)))
        try:
            return running.results.get(timeout=SECONDS + 30)
        finally:
            running.runner.close(5)


@pytest.fixture(scope="module")
def machine(template: ChatTemplate, sandboxes: Bubblewrap, gateway: Gateway) -> Machine:
    return Machine(template, sandboxes, gateway)


@pytest.mark.parametrize(
    ("instance", "says", "reward"),
    [
        (COUNTING, ["<answer>500</answer>"], 1.0),
        (GUESSING, ["20", "80", "It is 50"], 1.0),
        (GUESSING, ["20"] * 10, 0.0),
        (SHOPPING, [price("apple"), price("bread"), "They cost 10."], 1.0),
        (SHOPPING, [price("car"), "I do not know."], 0.0),
    ],
    ids=["counting", "guessing", "guessing badly", "shopping", "shopping badly"],
)
def test_their_reward_is_ours_and_the_trajectory_is_exact(
    machine: Machine, instance: dict[str, Any], says: list[str], reward: float
) -> None:
    result = machine.play(instance, *says, max_turns=20)
    assert result.outcome is Outcome.COMPLETED, result.error
    assert result.grade is not None
    assert result.grade.reward == reward
    trajectory = result.trajectory
    assert trajectory is not None
    assert (trajectory.earlier, trajectory.truncated) == ((), False)
    assert len(machine.policy.requests) == len(trajectory.turns) == len(says)
    for request, turn in zip(machine.policy.requests, trajectory.turns, strict=True):
        assert list(request.token_ids) == list(trajectory.token_ids[: turn.start])


@pytest.mark.parametrize(
    ("env", "arguments", "texts"),
    [
        (REASONING, LEGS, ["<answer>500</answer>", "<answer>5</answer>"]),
        ("sophistry_bench_sprint", DEBATE, [CITED, "It is so."]),
        ("stardata.envs.constraint_gym", POEM, ["A dusk\nof calm", "He sees the eels\nEye me"]),
    ],
    ids=["verifiers", "sophistry-bench-sprint", "staros-stardata"],
)
def test_published_packages_give_the_reward_that_they_give_without_us(
    machine: Machine, env: str, arguments: dict[str, Any], texts: list[str]
) -> None:
    instance = verifiers_rows(env, **arguments)[0]
    rewards = {text: reward_without_rollyard(instance, [text]) for text in texts}
    assert len(set(rewards.values())) == len(texts)
    for text, reward in rewards.items():
        result = machine.play(instance, text, max_tokens=16_000)
        assert (result.outcome, result.reward) == (Outcome.COMPLETED, reward), result.error


@pytest.mark.parametrize("limits", [{"max_turns": 2}, {"max_tokens": 60}])
def test_one_that_meets_a_limit_is_graded_as_far_as_it_came(
    machine: Machine, limits: dict[str, int]
) -> None:
    result = machine.play(GUESSING, *["20"] * 10, **limits)
    assert result.outcome is Outcome.COMPLETED, result.error
    assert result.grade is not None
    assert (result.grade.reward, result.grade.reason) == (0.0, "prompt_too_long")
    assert result.grade.metrics["num_turns"] == len(machine.policy.requests)


def test_a_policy_that_fails_is_never_a_reward(machine: Machine) -> None:
    policy = Fails(LLMUnavailable("all LLM servers are away"))
    result = machine.work(policy, GUESSING)
    assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, Blame.SERVER)
    assert result.grade is None


def test_the_page_says_how_rows_are_written(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(import json, sys\n[^`]*)```", PAGE)
    (tmp_path / "rows.py").write_text(code)
    command = [str(PYTHON), str(tmp_path / "rows.py"), "guess_number", '{"rows": 2}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    first, _ = map(json.loads, done.stdout.splitlines())
    assert first["env"] == "guess_number"
    assert first["input"]["answer"] == "50"
