"""NeMo-Gym's own rollout collection from two agent servers with the real vLLM behind them.

Nothing is refused, NeMo-RL's assertion holds, and each token scores as it is told."""

import json
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console
from rich.table import Table

from launch.free_ports import free_port
from rollyard.messages import Sequence as SampledSequence
from rollyard.messages import Turn, WeightSpan
from tests.agent_server.fakes import OrchestratorForAgents
from tests.agent_server.nemo_gym.client import sampled
from tests.agent_server.nemo_gym.conftest import GymDoorProcess
from tests.llm_fixtures import VLLM_PYTHON, await_healthy, label, start_module
from tests.real_doors.collecting import Collection, read_by_nemo_gym
from tests.real_doors.rescoring import gaps
from tests.real_environments.conftest import StartTheirs
from tests.real_environments.test_nemo_gym import COUNTER
from tests.real_environments.test_nemo_gym import row as counter_row
from tests.serving_threads import served
from tests.waiting import until

pytestmark = pytest.mark.timeout(3600)  # the first test makes the policy, and starts vLLM

AGENTS = ("rollyard-0", "rollyard-1")
ROWS = 32
REPEATS = 3
SLOTS = 8
SAMPLING = {"temperature": 0.6, "top_p": 1.0, "max_output_tokens": 160}
OPTIONS = ("--tool-calls", "hermes", "--nemo-gym-turns", "6", "--nemo-gym-seconds", "300")
MAX_GAP = 1e-3


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTheirs]:
    starts = StartTheirs(tmp_path_factory.mktemp("theirs"))
    yield starts
    starts.stop()


@pytest.fixture(scope="module")
def vllm(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("vllm") / "vllm.log"
    command = ["llm_servers.vllm_server", "--python", str(VLLM_PYTHON), "--model", str(policy)]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", "16384"]
    started = start_module(command, log)
    try:
        await_healthy(started, url, 400)
        label(url, 0)
        yield url
    finally:
        started.stop()


def start(door: GymDoorProcess, vllm: str, policy: Path) -> None:
    door.start(vllm, slots=SLOTS, model=policy, options=OPTIONS)


@pytest.fixture(scope="module")
def doors(
    vllm: str, policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GymDoorProcess]]:
    """Two agent servers, each with a door."""
    orchestrator, running = OrchestratorForAgents(), ExitStack()
    with running, served(orchestrator.app()) as url:
        opened = []
        for name in AGENTS:
            door = GymDoorProcess(tmp_path_factory.mktemp(name), orchestrator, url, name)
            running.callback(door.stop)
            start(door, vllm, policy)
            opened.append(door)
        yield opened


@pytest.fixture(scope="module")
def head(theirs: StartTheirs, doors: list[GymDoorProcess], tmp_path_factory: Any) -> str:
    """URL of NeMo-Gym's head server, which is told of both doors as docs/doors.md says."""
    places = [urlsplit(door.client.url) for door in doors]
    config = {
        name: {"responses_api_agents": {"rollyard": {"host": at.hostname, "port": at.port}}}
        for name, at in zip(AGENTS, places, strict=True)
    }
    file = tmp_path_factory.mktemp("head") / "doors.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    return theirs("nemo-gym", "nemo_gym_head.py", str(file)).url


@pytest.fixture(scope="module")
def rows(theirs: StartTheirs) -> list[dict[str, Any]]:
    """Rows of NeMo-Gym's own, with the address of their resources server, and of a game of ours."""
    counter = theirs.nemo_gym(*COUNTER)
    mixed = []
    for number in range(ROWS):
        asked = _counted(counter_row(counter, COUNTER[0]), number) if number % 2 else _lake(number)
        asked["responses_create_params"] |= SAMPLING
        mixed.append(asked | {"agent_ref": {"name": AGENTS[number // 2 % 2]}})
    return mixed


def _counted(row: dict[str, Any], number: int) -> dict[str, Any]:
    """The policy adds one or two, if anything."""
    del row["data_source"]  # it is the one of rows that name none
    return row | {"initial_count": 0, "expected_count": 1 + number // 2 % 2}


def _lake(number: int) -> dict[str, Any]:
    """To the right is the goal, and below is a hole."""
    lake = {"desc": ["SG", "HF"], "is_slippery": False}
    game = {"data_source": "gym", "env_id": "FrozenLake-v1", "kwargs": lake, "seed": number}
    return game | {"responses_create_params": {"input": []}}


@pytest.fixture(scope="module")
def rollouts(
    rows: list[dict[str, Any]], head: str, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    collection = Collection(tmp_path_factory.mktemp("collection"), head, rows)
    began = time.monotonic()
    found = collection.collect(f"+num_repeats={REPEATS}", "+num_repeats_add_seed=true")
    print(f"\n{len(found)} rollouts in {time.monotonic() - began:.0f} s, none refused")
    for name, mean in collection.means().items():
        rewards = [each["reward"] for each in found if each["agent_ref"]["name"] == name]
        assert mean == pytest.approx(sum(rewards) / len(rewards))
    return found


def test_all_rollouts_are_collected_from_both_agent_servers(rollouts: list[dict[str, Any]]) -> None:
    keys = {(each["_ng_task_index"], each["_ng_rollout_index"]) for each in rollouts}
    assert len(keys) == len(rollouts) == ROWS * REPEATS
    assert {each["agent_ref"]["name"] for each in rollouts} == set(AGENTS)
    assert len({each["reward"] for each in rollouts}) > 1


def test_nemo_gym_takes_each_for_a_verified_response(rollouts: list[dict[str, Any]]) -> None:
    read_by_nemo_gym(rollouts)


def test_each_prompt_begins_with_all_tokens_before_it(rollouts: list[dict[str, Any]]) -> None:
    items = [sampled(each["response"]["output"]) for each in rollouts]
    assert [len(each) for each in items] == [each["turns"] for each in rollouts]
    assert any(len(each) > 2 for each in items)
    assert {item["type"] for each in items for item in each} == {"message", "function_call"}


def test_each_token_scores_as_it_is_told(rollouts: list[dict[str, Any]], policy: Path) -> None:
    sequences = [as_sequence(sampled(each["response"]["output"])) for each in rollouts]
    temperature = SAMPLING["temperature"]
    found = gaps([(each, {0}) for each in sequences], {0: policy}, temperature)
    spans = [span for each in found for span in each]
    worst = max(span.own for span in spans)
    table = Table("rollouts", "turns", "sampled tokens", "worst gap (nat)", "mean reward")
    rewards = [each["reward"] for each in rollouts]
    table.add_row(
        *(str(len(rollouts)), str(sum(each["turns"] for each in rollouts))),
        *(str(sum(span.tokens for span in spans)), f"{worst:.1e}"),
        f"{sum(rewards) / len(rewards):.2f}",
    )
    Console(width=100).print(table)
    assert worst <= MAX_GAP


def as_sequence(items: Sequence[dict[str, Any]]) -> SampledSequence:
    """The tokens of a trajectory, with those that were sampled."""
    last = items[-1]
    tokens = array("i", last["prompt_token_ids"] + last["generation_token_ids"])
    mask, logprobs = array("b", bytes(len(tokens))), array("f", bytes(4 * len(tokens)))
    places = []
    for item in items:
        start = len(item["prompt_token_ids"])
        end = start + len(item["generation_token_ids"])
        mask[start:end] = array("b", [1] * (end - start))
        logprobs[start:end] = array("f", item["generation_log_probs"])
        places.append((start, end))
    return SampledSequence(
        token_ids=tokens,
        loss_mask=mask,
        logprobs=logprobs,
        weight_spans=tuple(WeightSpan(version=0, start=start, end=end) for start, end in places),
        turns=tuple(Turn(start=start, end=end, finish_reason="stop") for start, end in places),
    )


def test_an_agent_server_that_is_killed_and_started_again_costs_no_rollout(
    rows: list[dict[str, Any]],
    doors: list[GymDoorProcess],
    head: str,
    vllm: str,
    policy: Path,
    tmp_path: Path,
) -> None:
    collection = Collection(tmp_path, head, rows)
    running = collection.begin(f"+num_repeats={REPEATS}")
    until("some are collected", lambda: len(collection.rollouts()) >= ROWS // 2, 300)
    assert doors[0].process is not None
    doors[0].process.kill()
    start(doors[0], vllm, policy)
    collection.end(running)
    found = collection.rollouts()
    assert len(found) == ROWS * REPEATS
    for each in found:
        sampled(each["response"]["output"])


def test_a_door_is_its_own_head_server(
    rows: list[dict[str, Any]], doors: list[GymDoorProcess], tmp_path: Path
) -> None:
    own = [row | {"agent_ref": {"name": "rollyard"}} for row in rows[:4]]
    assert len(Collection(tmp_path, doors[1].client.url, own).collect()) == len(own)
