"""NeMo-RL's trainer lets the arithmetic policy learn to use its tool, on real vLLM."""

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rollyard
from launch.free_ports import free_ports
from rollyard.trainers.nemo_rl import DataloaderRows, Rollouts
from tests.real_nemo_rl.grpo import Training, config

pytestmark = pytest.mark.timeout(1200)

COMMAND = Path(__file__).parents[2] / ".venv" / "bin" / "rollyard"
STEPS = 20
GROUPS, GROUP_SIZE = 8, 8
EVALUATED = 64
SAMPLING = rollyard.Sampling(temperature=1.0, max_response_tokens=24)
PROBLEMS = [
    {"data_source": "arithmetic", "question": f"{a}*{a + 1}", "answer": str(a * (a + 1))}
    for a in range(10, 99)
]


@pytest.fixture
def client(
    tmp_path: Path, policy_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[rollyard.Client]:
    """Of a deployment with vLLM."""
    directory = tmp_path / "deployment"
    port = free_ports(agent_servers=2, llm_servers=1).orchestrator
    options = ["--detach", "--port", str(port), "--model", str(policy_dir)]
    subprocess.run([COMMAND, "up", *options, "--directory", directory], check=True, timeout=300)
    monkeypatch.setenv("ROLLYARD_TOKENS_FILE", str(directory / "tokens"))
    try:
        with rollyard.Client(f"http://127.0.0.1:{port}", show_progress=False) as client:
            yield client
    finally:
        subprocess.run([COMMAND, "down", "--directory", directory], check=True, timeout=60)


def test_it_solves_more_by_a_fifth_of_all_problems(
    client: rollyard.Client, tmp_path: Path, policy_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config(
        tmp_path,
        steps=STEPS,
        num_prompts_per_step=GROUPS,
        num_generations_per_prompt=GROUP_SIZE,
        val_at_start=True,
        val_period=STEPS,
        val_batch_size=EVALUATED,
        max_val_samples=EVALUATED,
    )
    settings.policy["learning_rate"] = 3e-4
    settings.policy["generation"]["temperature"] = SAMPLING.temperature
    problems = list(itertools.islice(itertools.cycle(PROBLEMS), 1000))
    training = Training(
        settings, policy_dir, problems, lambda *_: None, validation=PROBLEMS[:EVALUATED]
    )
    rows = DataloaderRows(training.dataloader)
    with client.run(rows, run_id="nemo-rl", group_size=GROUP_SIZE, sampling=SAMPLING) as run:
        save = training.policy.model.save_pretrained
        published = tmp_path / "published"
        training.train(Rollouts(client, run, published, save=save, clip_around_sampled=True))
    solved = [training.logger.metrics["validation", step]["accuracy"] for step in (0, STEPS)]
    ratios = [training.logger.metrics["train", step]["probs_ratio"] for step in range(1, STEPS + 1)]
    with capsys.disabled():
        print(f"\nsolved {solved[0]:.0%} before {STEPS} steps, and {solved[1]:.0%} after them")
    assert solved[1] - solved[0] >= 0.2
    assert ratios[0] == pytest.approx(1.0, abs=1e-3)
