"""Fault 29 of the fault catalogue in docs/reliability.md: each process dies and starts again.

In a seeded order, and everything stopped and started in between: the same trainer goes on, no
weight version is used twice, no token is too old for its Batch or newer than it, and nothing is
begun again for ever.
"""

import random
from pathlib import Path

import pytest

from launch.engine import Engine, LLMKind
from launch.free_ports import free_ports
from launch.plan import DeploymentSettings
from tests.faults.scale import FULL, scaled
from tests.faults.training import GROUP_SIZE, GROUPS, MAX_STALENESS, Step
from tests.faults.whole_deployment import WholeDeployment, whole_deployment
from tests.llm_fixtures import POLICY, VLLM_PYTHON

STEPS_BEFORE = 5
"""Until the weights have version 5."""
EVERYTHING = "everything"


def settings(directory: Path, engine: Engine, llm_servers: int) -> DeploymentSettings:
    return DeploymentSettings(
        model=POLICY,
        directory=directory,
        ports=free_ports(agent_servers=2, llm_servers=llm_servers),
        slots=4,
        engine=engine,
    )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(scaled(1, 20)))
def test_training_goes_on_whatever_is_killed_and_started_again(tmp_path: Path, seed: int) -> None:
    engine = Engine(kind=LLMKind.SCRIPTED)
    deployment_settings = settings(tmp_path / "deployment", engine, llm_servers=2)
    with whole_deployment(deployment_settings, seed) as deployment:
        deployment.start_all()
        deployment.wait_for_steps(STEPS_BEFORE)
        victims = [*deployment.services, "trainer", EVERYTHING]
        hurt_in_turn(deployment, random.Random(seed).sample(victims, len(victims)))
        assert_sound(deployment.steps())


@pytest.mark.skipif(not FULL, reason="test_supervised_deployment.py kills one of two of them")
@pytest.mark.timeout(1800)
def test_training_goes_on_when_real_llm_servers_start_again(tmp_path: Path) -> None:
    engine = Engine(python=VLLM_PYTHON, dtype="float32")
    deployment_settings = settings(tmp_path / "deployment", engine, llm_servers=1)
    with whole_deployment(deployment_settings, 0) as deployment:
        deployment.start_all()
        deployment.wait_for_steps(STEPS_BEFORE)
        victims = ["llm-0", *([EVERYTHING, *deployment.services] if FULL else [])]
        hurt_in_turn(deployment, victims)
        assert_sound(deployment.steps())


def hurt_in_turn(deployment: WholeDeployment, victims: list[str]) -> None:
    for victim in victims:
        if victim == EVERYTHING:
            deployment.kill_trainer_between_steps()
            deployment.stop_all()
            deployment.start_all()
        else:
            deployment.kill(victim)
            deployment.start(victim)
        deployment.wait_for_steps(2)


def assert_sound(steps: list[Step]) -> None:
    versions = [step.version for step in steps]
    assert versions == sorted(set(versions)), "a version was used twice"
    assert len({step.batch_id for step in steps}) == len(steps)
    groups = [group for step in steps for group in step.groups]
    assert len(set(groups)) == len(groups), "a group was trained on twice"
    for step in steps:
        assert step.batch_version - MAX_STALENESS <= step.oldest <= step.newest
        assert step.newest <= step.batch_version
    assert steps[-1].dead == 0
    members = len(steps) * GROUPS * GROUP_SIZE
    assert steps[-1].restarted < members, "more was begun again than trained on"
