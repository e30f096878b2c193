"""The trainer on one page trains: a real policy, real losses, real checkpoints."""

from pathlib import Path
from typing import NamedTuple

import pytest
from fake_rollyard import FakeClient, FakeLLM, FakeRun

from examples import minimal

STEPS = 2


class Trained(NamedTuple):
    run: FakeRun
    checkpoints: Path
    calls_the_tool: tuple[float, float]
    """Logprob of the first token of a call, as served before and after."""


@pytest.fixture(scope="module")
def trained(policy_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    llm, checkpoints = FakeLLM(policy_dir), tmp_path_factory.mktemp("checkpoints")
    client, before = FakeClient(llm), llm.logprob_of_a_call()
    minimal.train(client, minimal.problems(), policy_dir, checkpoints, STEPS)
    return Trained(client.runs["minimal-1"], checkpoints, (before, llm.logprob_of_a_call()))


def test_every_batch_is_requested_ahead_and_acknowledged(trained: Trained) -> None:
    assert trained.run.acknowledged == trained.run.requested[:STEPS]
    assert len(trained.run.requested) == STEPS + 1
    assert trained.run.closed


def test_each_step_publishes_its_weights_one_version_higher(
    trained: Trained, policy_dir: Path
) -> None:
    made = (trained.checkpoints / f"version-{version}" for version in range(2, STEPS + 2))
    assert trained.run.updates == [
        (str(path), version) for version, path in enumerate([policy_dir.resolve(), *made], 1)
    ]


def test_what_is_served_has_learned_to_call_the_tool(trained: Trained) -> None:
    before, after = trained.calls_the_tool
    assert after > before


def test_it_is_one_page() -> None:
    assert len(Path(minimal.__file__).read_text().splitlines()) <= 85
