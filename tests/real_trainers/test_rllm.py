"""rLLM's own types and transform on our episodes, where RLLM_PATH names a checkout: it is in no
registry."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rollyard.messages import Batch
from rollyard.trainers.completions import completion_of
from rollyard.trainers.rllm import episode_of, members
from rollyard.trainers.sequences import training_sequences
from tests.real_trainers.conftest import GROUPS
from tests.trainers.sampled import GROUP_SIZE
from tests.trajectories import batch as batch_of
from tests.trajectories import group, trajectory

CHECKOUT = os.environ.get("RLLM_PATH")
pytestmark = pytest.mark.skipif(CHECKOUT is None, reason="RLLM_PATH names no checkout")


@pytest.fixture
def episodes(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.syspath_prepend(str(Path(CHECKOUT or "")))
    return [episode_of(*each) for each in members(batch)]


def test_a_row_of_its_batch_is_a_sequence_of_ours(episodes: list[Any], batch: Batch) -> None:
    from rllm.trainer.verl.dataclass import AccumulatedData
    from rllm.trainer.verl.transform import _process_episode

    found = AccumulatedData()
    for episode in episodes:
        assert _process_episode(episode, episode.task_id, found) == 1
    ours = [completion_of(sequence) for sequence in training_sequences(batch)]
    assert [each.tolist() for each in found.prompts] == [each.prompt_ids for each in ours]
    assert [each.tolist() for each in found.responses] == [each.completion_ids for each in ours]
    assert [each.tolist() for each in found.traj_mask] == [each.mask for each in ours]
    assert [each.tolist() for each in found.rollout_logprobs] == [
        torch.tensor(each.logprobs).tolist() for each in ours
    ]
    assert found.traj_rewards == [each.reward for each in ours]


def test_a_trajectory_without_a_sampled_token_counts_in_its_group_and_leaves_others_their_logprobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(CHECKOUT or "")))
    from rllm.trainer.algorithms.config import TransformConfig
    from rllm.trainer.algorithms.transform import transform_episodes_to_trajectory_groups
    from rllm.trainer.verl.transform import transform_episodes_to_dataproto

    silent, said = trajectory(("given", [1, 2])), trajectory(("given", [1, 2]), ("sampled", [3]))
    made = members(batch_of(group("g", (0.0, silent), (1.0, said))))
    episodes = [episode_of(*each) for each in made]
    (found,), _ = transform_episodes_to_trajectory_groups(episodes, TransformConfig())
    assert [each.reward for each in found.trajectories] == [0.0, 1.0]
    engine = SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=0))
    data = transform_episodes_to_dataproto(episodes, engine, 2, 1)
    assert data.batch["rollout_log_probs"].tolist() == [[-1.0]]


def test_its_groups_are_ours(episodes: list[Any]) -> None:
    from rllm.trainer.algorithms.config import TransformConfig
    from rllm.trainer.algorithms.transform import transform_episodes_to_trajectory_groups

    groups, _ = transform_episodes_to_trajectory_groups(episodes, TransformConfig())
    assert [len(group.trajectories) for group in groups] == [GROUP_SIZE] * GROUPS
    assert "rllm" in sys.modules
