"""Fault 30 of the fault catalogue in docs/reliability.md: what `rollyard up` runs comes back.

Nobody starts anything here but `rollyard up` and a trainer. Whatever is killed, the run goes on.
"""

import itertools
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from launch.parts import read_parts
from launch.processes import Started, module_command, start_process
from launch.restarts import PartState
from llm_servers.server import LLMServer
from rollyard import Client, Criterion, Sampling
from tests.deployment_fixtures import RunningDeployment, StartDeployment
from tests.faults.test_everything_restarts import assert_sound
from tests.faults.training import read_steps
from tests.faults.whole_deployment import STEP_SECONDS
from tests.llm_fixtures import POLICY, VLLM_PYTHON
from tests.waiting import until

BACK_SECONDS = 300.0
"""For a part to be ready again, on a machine that has other work to do."""
GROUP_SIZE = 4
EVEN = 1.2
EVEN_FOR_LENGTHS = 1.5
"""Of 96 responses whose lengths a policy draws: jobs that are shared evenly differ in tokens."""
"""The most that one LLM server may have done of what another one has."""


class Yard:
    """A `rollyard up`, seen through its processes and what it says of them."""

    def __init__(self, deployment: RunningDeployment) -> None:
        self.deployment = deployment
        self.urls: dict[str, str] = json.loads(deployment.line)

    def kill(self, name: str) -> None:
        """Kill -9 of the process that the launcher started, and of nothing else."""
        port = int(self.urls[name].rpartition(":")[2])
        children = psutil.Process(self.deployment.process.pid).children()
        (child,) = [each for each in children if port in _listens_on(each)]
        child.kill()

    def wait_until_back(self, name: str) -> None:
        def back() -> bool:
            assert self.deployment.process.poll() is None, self.deployment.last_words()
            parts = {part.name: part for part in read_parts(self.deployment.directory)}
            assert parts[name].state is not PartState.GIVEN_UP, parts[name]
            return parts[name].restarts > 0 and parts[name].state is PartState.READY

        until(f"{name} is back", back, BACK_SECONDS)

    def llm_servers(self) -> list[str]:
        return [url for name, url in self.urls.items() if re.fullmatch(r"llm-\d", name)]

    def tokens(self) -> list[float]:
        """The tokens that each LLM server has generated so far."""
        return [_tokens(url) for url in self.llm_servers()]

    def versions(self) -> list[int | None]:
        """The weight version of each LLM server."""
        return [LLMServer(url).version() for url in self.llm_servers()]


def _listens_on(process: psutil.Process) -> set[int]:
    found = process.net_connections("tcp")
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


def _tokens(url: str) -> float:
    said = requests.get(f"{url}/metrics", timeout=10).text
    return sum(
        map(float, re.findall(r"^vllm:generation_tokens_total\S* (\S+)$", said, re.MULTILINE))
    )


@pytest.fixture
def trainers() -> Iterator[list[Started]]:
    running: list[Started] = []
    yield running
    for trainer in running:
        trainer.kill()


@pytest.mark.timeout(1800)
def test_a_run_completes_though_each_process_is_killed_once(
    start_deployment: StartDeployment, trainers: list[Started], tmp_path: Path
) -> None:
    servers = ("--llm-servers", "2", "--llm-proxy")
    yard = Yard(start_deployment("--llm", "scripted", "--slots", "4", *servers))
    trainers.append(start_trainer(yard.deployment.url, tmp_path))
    wait_for_steps(trainers[0], tmp_path, 2)
    for victim in random.Random(0).sample(sorted(yard.urls), len(yard.urls)):
        yard.kill(victim)
        yard.wait_until_back(victim)
        wait_for_steps(trainers[0], tmp_path, 1)
    steps = read_steps(tmp_path)
    assert_sound(steps)
    assert [part.restarts for part in read_parts(yard.deployment.directory)] == [1] * 8


def start_trainer(url: str, directory: Path) -> Started:
    options = ("--url", url, "--directory", str(directory), "--seed", "0", "--model", str(POLICY))
    return start_process(
        "trainer", module_command("tests.faults.training", *options), directory / "trainer.log"
    )


def wait_for_steps(trainer: Started, directory: Path, more: int) -> None:
    goal = len(read_steps(directory)) + more

    def reached() -> bool:
        assert trainer.process.poll() is None, trainer.last_log_line
        return len(read_steps(directory)) >= goal

    until(f"{more} more steps of training", reached, STEP_SECONDS)


def problems() -> Iterator[dict[str, Any]]:
    for left, right in itertools.product(range(10, 100), repeat=2):
        question, answer = f"{left}*{right}", str(left * right)
        yield {"data_source": "arithmetic", "question": question, "answer": answer}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("options", "groups", "even"),
    [
        (("--llm", "scripted", "--slots", "16"), 48, EVEN),
        (("--llm", "scripted", "--slots", "16", "--llm-proxy"), 48, EVEN),
        (
            ("--llm-python", str(VLLM_PYTHON), "--slots", "8", "--agent-servers", "1"),
            24,
            EVEN_FOR_LENGTHS,
        ),
    ],
    ids=["scripted", "proxy", "vllm"],
)
def test_llm_servers_share_the_work_and_one_that_dies_loses_none(
    start_deployment: StartDeployment,
    options: tuple[str, ...],
    groups: int,
    even: float,
    tmp_path: Path,
) -> None:
    yard = Yard(start_deployment(*options, "--llm-servers", "2"))
    with (
        Client(yard.deployment.url, patience_seconds=BACK_SECONDS) as client,
        client.run(
            problems(),
            run_id="even",
            group_size=GROUP_SIZE,
            criterion=Criterion.COMPLETE,
            sampling=Sampling(max_response_tokens=24),
        ) as run,
    ):
        run.update_weights(shutil.copytree(POLICY, tmp_path / "version-1"), 1)
        before = yard.tokens()
        run.ack(run.rollout(groups))
        done = [now - then for now, then in zip(yard.tokens(), before, strict=True)]
        assert max(done) <= even * min(done), done
        run.request(groups)
        halfway = groups * GROUP_SIZE * 5 // 4
        until(
            "jobs of the second batch have ended",
            lambda: run.status().counters.jobs_accepted > halfway,
        )
        yard.kill("llm-1")
        batch = run.rollout(groups, timeout_seconds=BACK_SECONDS)
        assert [len(group.results) for group in batch.groups] == [GROUP_SIZE] * groups
        counters = run.status().counters
        assert (counters.jobs_dead, counters.groups_dead) == (0, 0)
        yard.wait_until_back("llm-1")
        until("all have the published weights", lambda: yard.versions() == [1, 1], BACK_SECONDS)
        run.ack(run.rollout(groups, timeout_seconds=BACK_SECONDS))
