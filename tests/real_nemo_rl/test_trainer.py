"""What NeMo-RL's trainer is given beside the Batch's tokens, and what it validates."""

import copy
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from rollyard.errors import InvalidMessage
from rollyard.messages import Unit
from rollyard.trainers.nemo_rl.rows import DataloaderRows
from tests.real_nemo_rl.grpo import GROUP_SIZE, GROUPS, STEPS, Training, config, loader
from tests.real_nemo_rl.sampled import SampledGroups, reward_of, rollouts_of, run_on

ROWS = [{"row": number} for number in range(GROUPS * STEPS)]
VALIDATION = [{"row": number} for number in range(100, 104)]


@pytest.mark.parametrize("samples", [1, 3])
def test_validation_is_of_its_rows_alone_and_trains_on_none(
    samples: int, tmp_path: Path, policy_dir: Path
) -> None:
    changes: dict[str, Any] = {
        "val_period": 2,
        "val_at_start": True,
        "val_num_generations_per_prompt": samples,
    }
    training = Training(
        config(tmp_path, **changes), policy_dir, ROWS, lambda *_: None, validation=VALIDATION
    )
    run = run_on(SampledGroups(policy_dir), training.dataloader)
    rollouts = rollouts_of(run, tmp_path, policy_dir)
    training.train(rollouts)
    rewards = [reward_of(row["row"], member) for row in VALIDATION for member in range(samples)]
    for step in (0, 2, 4, 6):
        found = training.logger.metrics["validation", step]["accuracy"]
        assert found == pytest.approx(sum(rewards) / len(rewards))
    fed = [group.prompt.instance["row"] for batch in run.returned for group in batch.groups]
    assert sorted(fed) == [row["row"] for row in ROWS]
    assert run.acknowledged == [batch.batch_id for batch in run.returned]


def test_weights_are_published_as_checkpoints_and_sampled_ahead(
    tmp_path: Path, policy_dir: Path
) -> None:
    loss = {"use_importance_sampling_correction": True}
    training = Training(config(tmp_path, loss=loss), policy_dir, ROWS, lambda *_: None)
    orchestrator = SampledGroups(policy_dir, behind=1)
    run = run_on(orchestrator, training.dataloader, max_staleness=1)
    training.train(
        rollouts_of(run, tmp_path, policy_dir, save=training.policy.model.save_pretrained)
    )
    assert orchestrator.served == STEPS + 1
    published = AutoModelForCausalLM.from_pretrained(orchestrator.checkpoints[-1])
    served = dict(published.named_parameters())
    for name, trained in training.policy.model.named_parameters():
        assert served[name].equal(trained), name
    for step in range(1, STEPS + 1):
        metrics = training.logger.metrics["train", step]
        assert metrics["mean_trajectory_age"] == pytest.approx(1 / GROUP_SIZE)
        assert metrics["max_trajectory_age"] == 1
        assert metrics["truncation_rate"] == pytest.approx(1 / GROUP_SIZE)
        assert metrics["batch/groups"] == GROUPS


def test_truncated_trajectories_are_left_out_where_it_filters_overlong_ones(
    tmp_path: Path, policy_dir: Path
) -> None:
    masks: list[Any] = []
    training = Training(
        config(tmp_path, steps=1, overlong_filtering=True),
        policy_dir,
        ROWS,
        lambda _, data: masks.append(data["sample_mask"].tolist()),
    )
    run = run_on(SampledGroups(policy_dir), training.dataloader)
    training.train(rollouts_of(run, tmp_path, policy_dir))
    assert masks == [[*[1.0] * (GROUP_SIZE - 1), 0.0] * GROUPS]


@pytest.mark.parametrize(
    ("settings", "changes", "said"),
    [
        ({"group_size": 8}, {}, "num_generations_per_prompt=4, and the run has group_size=8"),
        ({"unit": Unit.TRAJECTORIES, "criterion": "complete"}, {}, "unit='trajectories'"),
        ({"max_staleness": 1}, {}, "samples while NeMo-RL puts weights"),
        ({}, {"use_dynamic_sampling": True}, "use_dynamic_sampling is set"),
    ],
)
def test_settings_that_do_not_agree_are_refused(
    settings: dict[str, Any],
    changes: dict[str, Any],
    said: str,
    tmp_path: Path,
    policy_dir: Path,
) -> None:
    training = Training(config(tmp_path, **changes), policy_dir, ROWS, lambda *_: None)
    run = run_on(SampledGroups(policy_dir), training.dataloader, **settings)
    with pytest.raises(InvalidMessage, match=said):
        training.train(rollouts_of(run, tmp_path, policy_dir))


def test_rows_of_several_epochs_go_on_where_they_were() -> None:
    def rows() -> DataloaderRows:
        return DataloaderRows(loader(ROWS, GROUPS), epochs=2)

    whole = [row for item in rows() for row in item]
    assert [row["row"] for row in whole] == [row["row"] for row in ROWS] * 2
    for drawn in range(2 * STEPS + 1):
        first = rows()
        items = iter(first)
        begun = [row for _ in range(drawn) for row in next(items)]
        second = rows()
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        assert [*begun, *(row for item in second for row in item)] == whole, drawn
