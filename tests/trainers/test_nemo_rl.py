"""What NeMo-RL's adapter does beyond the contract: message logs, rows, validation."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rollyard.errors import Conflict, InvalidMessage
from rollyard.messages import RunSettings, Sampling, Unit
from rollyard.trainers.completions import PromptCompletion
from rollyard.trainers.nemo_rl.config import check
from rollyard.trainers.nemo_rl.message_logs import first_lengths, message_log
from rollyard.trainers.nemo_rl.rows import DataloaderRows, row_of
from tests.trainers.adapters.nemo_rl import ADAPTER, NemoRlTrainer, config
from tests.trainers.contract import GROUP_SIZE, TEMPERATURE, Start
from tests.trainers.nemo_rl_loop import BatchedDataDict, first_messages, flattened
from tests.trainers.orchestrator import Orchestrator
from tests.trainers.training import STEPS, Training, rows

PAD = 0


def completion(
    prompt_ids: Sequence[int], mask: Sequence[int] = (1, 0, 0, 1), group: int = 0
) -> PromptCompletion:
    return PromptCompletion(
        prompt_ids=list(prompt_ids),
        completion_ids=[100 + place for place in range(len(mask))],
        logprobs=[-0.5 * each for each in mask],
        mask=list(mask),
        weight_versions=[7 if each else -1 for each in mask],
        reward=1.0,
        group=group,
        truncated=False,
    )


def logs_of(completions: Sequence[PromptCompletion]) -> tuple[list[Any], list[int]]:
    lengths = first_lengths(completions, PAD)
    made = zip(completions, lengths, strict=True)
    return [message_log(one, first, str) for one, first in made], lengths


def data_of_rows(given: Sequence[Any]) -> BatchedDataDict:
    """What NeMo-RL's dataloader gives for these rows."""
    return BatchedDataDict(
        message_log=[[{"role": "user", "content": "?", "token_ids": torch.tensor([1])}]]
        * len(given),
        extra_env_info=[dict(row) for row in given],
        task_name=["x"] * len(given),
        idx=list(range(len(given))),
    )


def test_messages_are_what_was_read_and_what_was_sampled_in_turn() -> None:
    ((log,), _) = logs_of([completion([1, 2, 3])])
    assert [message["role"] for message in log] == ["user", "assistant", "environment", "assistant"]
    assert [message["token_ids"].tolist() for message in log] == [
        [1, 2, 3],
        [100],
        [101, 102],
        [103],
    ]
    assert [message["content"] for message in log] == ["[1, 2, 3]", "[100]", "[101, 102]", "[103]"]
    assert ["generation_logprobs" in message for message in log] == [False, True, False, True]
    assert log[1]["generation_logprobs"].tolist() == [-0.5]
    assert [message["weight_versions"].tolist() for message in log][1:3] == [[7], [-1, -1]]


def test_a_trajectory_without_a_sampled_token_has_no_message_of_the_policy() -> None:
    ((log,), _) = logs_of([completion([1, 2], mask=[0])])
    assert [message["role"] for message in log] == ["user", "environment"]


@pytest.mark.parametrize(
    ("prompts", "lengths"),
    [
        ([[1, 2, 3], [4, 5, 6]], [3, 3]),
        ([[1, 2, 3], [1, 2, 3], [1, 2, 3]], [3, 2, 1]),
        ([[1, 2, PAD], [1, 2, 3], [1, 2]], [3, 3, 1]),
    ],
    ids=["different prompts", "one prompt three times", "prompts that are the same once padded"],
)
def test_the_first_messages_of_groups_differ(prompts: list[list[int]], lengths: list[int]) -> None:
    completions = [
        completion(prompt, group=number) for number, prompt in enumerate(prompts) for _ in range(2)
    ]
    logs, found = logs_of(completions)
    assert found == [length for length in lengths for _ in range(2)]
    keys = flattened(first_messages(logs, found))["input_ids"]
    assert len(keys.unique(dim=0)) == len(prompts)
    whole = flattened(logs)
    for number, one in enumerate(completions):
        tokens = one.prompt_ids + one.completion_ids
        assert whole["input_ids"][number][: len(tokens)].tolist() == tokens


def test_the_first_message_of_a_group_is_what_all_its_prompts_begin_with() -> None:
    completions = [completion([1, 2, 3, 4]), completion([1, 2, 8]), completion([1, 2, 3, 9])]
    logs, lengths = logs_of(completions)
    assert lengths == [2, 2, 2]
    assert [log[0]["token_ids"].tolist() for log in logs] == [[1, 2]] * 3
    assert [log[1]["token_ids"].tolist() for log in logs] == [[3, 4], [8], [3, 9]]


def test_a_group_whose_prompts_have_nothing_in_common_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"group 0 .* begin differently"):
        logs_of([completion([1, 2]), completion([3, 2])])


@pytest.mark.parametrize("samples", [1, 2])
def test_a_validation_within_the_training_is_of_its_rows_alone(
    samples: int, tmp_path: Path, policy_dir: Path
) -> None:
    made: list[NemoRlTrainer] = []
    validation = rows(3, first=100)

    def trainer(start: Start) -> NemoRlTrainer:
        made.append(NemoRlTrainer(start, [data_of_rows(validation)], samples=samples))
        return made[-1]

    adapter = dataclasses.replace(ADAPTER, trainer=trainer)
    training = Training(adapter, Orchestrator(), tmp_path, policy_dir)
    training.run_process()
    assert training.dataset_rows() == list(range(training.rows))
    evaluations = [run for name, run in training.orchestrator.runs.items() if name != "run"]
    assert len(evaluations) == STEPS
    for run, found in zip(evaluations, made[0].validated(), strict=True):
        (batch,) = run.sampled.values()
        groups = sorted(batch.groups, key=lambda group: group.prompt.instance["row"])
        sampled = [result.reward for group in groups for result in group.results]
        assert found == pytest.approx(sampled)
        assert len(found) == 3 * samples
        assert run.closed


@pytest.mark.parametrize("groups", [1, 4])
def test_a_batch_of_another_size_is_refused_and_stays(
    tmp_path: Path, policy_dir: Path, groups: int
) -> None:
    orchestrator = Orchestrator()
    Training(ADAPTER, orchestrator, tmp_path, policy_dir).run_process()

    def trainer(start: Start) -> NemoRlTrainer:
        return NemoRlTrainer(start, num_prompts_per_step=groups)

    changed = dataclasses.replace(ADAPTER, trainer=trainer)
    training = Training(changed, orchestrator, tmp_path, policy_dir, steps=STEPS + 1, rows=12)
    with pytest.raises(Conflict, match=f"NeMo-RL takes {groups} groups, .* requested with 2"):
        training.run_process()
    assert not training.trained
    assert len(orchestrator.runs["run"].acknowledged) == STEPS


def test_a_checkpoint_without_the_runs_state_is_an_error_that_says_so(
    tmp_path: Path, policy_dir: Path
) -> None:
    checkpoint = tmp_path / "checkpoints" / "step_1"
    checkpoint.mkdir(parents=True)
    torch.save({"sums": [1.0]}, checkpoint / "weights.pt")
    torch.save({"_sampler_iter_yielded": 1}, checkpoint / "train_dataloader.pt")
    training = Training(ADAPTER, Orchestrator(), tmp_path, policy_dir)
    with pytest.raises(InvalidMessage, match=r"step_1 has no state of a run; .* another directory"):
        training.run_process()


def test_rows_are_those_of_the_dataloader_over_all_epochs() -> None:
    class Loader:
        """Two batches of two rows, and where it is."""

        def __init__(self) -> None:
            self.begun = 0

        def __iter__(self) -> Any:
            for first in range(2 * self.begun, 4, 2):
                self.begun += 1
                yield data_of_rows(rows(2, first=first))
            self.begun = 0

        def state_dict(self) -> dict[str, Any]:
            return {"begun": self.begun}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.begun = state["begun"]

    whole = [row["row"] for item in DataloaderRows(Loader(), epochs=2) for row in item]
    assert whole == [0, 1, 2, 3] * 2
    for drawn in range(5):
        first, second = (DataloaderRows(Loader(), epochs=2) for _ in range(2))
        items = iter(first)
        begun = [row["row"] for _ in range(drawn) for row in next(items)]
        second.load_state_dict(first.state_dict())
        assert begun + [row["row"] for item in second for row in item] == whole


def test_a_row_names_the_environment_of_its_task_unless_it_names_another() -> None:
    assert row_of({"task_name": "math", "extra_env_info": {"a": 1}}) == {
        "data_source": "math",
        "a": 1,
    }
    named = {"data_source": "swe"}
    assert row_of({"task_name": "math", "extra_env_info": named}) == named


@pytest.mark.parametrize(
    ("settings", "section", "changes", "said"),
    [
        ({"group_size": 8}, "", {}, "num_generations_per_prompt=4, and the run has group_size=8"),
        ({"unit": Unit.TRAJECTORIES, "criterion": "complete"}, "", {}, "unit='trajectories'"),
        (
            {"sampling": Sampling(temperature=1.0)},
            "",
            {},
            r"temperature=0.7, and the run .* at 1.0",
        ),
        ({"sampling": Sampling(temperature=0.7, top_p=0.9)}, "", {}, r"top_p=1.0, .* at 0.9"),
        ({"max_staleness": 1}, "", {}, "while NeMo-RL puts weights on the LLM servers"),
        ({}, "grpo", {"use_dynamic_sampling": True}, "grpo.use_dynamic_sampling is set"),
        ({}, "grpo", {"async_grpo": SimpleNamespace(enabled=True)}, "grpo.async_grpo.enabled is"),
        ({}, "", {"data_plane": {"enabled": True}}, "data_plane.enabled is set"),
        ({}, "", {"data": {"use_multiple_dataloader": True}}, "use_multiple_dataloader is set"),
        ({}, "", {"env": {"should_use_nemo_gym": True}}, "env.should_use_nemo_gym is set"),
    ],
)
def test_settings_that_do_not_agree_are_refused(
    settings: dict[str, Any], section: str, changes: dict[str, Any], said: str
) -> None:
    theirs = config(1)
    vars(getattr(theirs, section) if section else theirs).update(changes)
    with pytest.raises(InvalidMessage, match=said):
        check(settings_of(**settings), theirs, refitted=True, clips_around_sampled=False)


def test_tokens_of_older_weights_need_a_loss_that_knows_of_them() -> None:
    ahead = settings_of(max_staleness=1)
    with pytest.raises(InvalidMessage, match="loss would take for the present ones"):
        check(ahead, config(1), refitted=False, clips_around_sampled=False)
    check(ahead, config(1), refitted=False, clips_around_sampled=True)


def settings_of(**settings: Any) -> RunSettings:
    given = {
        "group_size": GROUP_SIZE,
        "sampling": Sampling(temperature=TEMPERATURE),
        "max_staleness": 0,
        **settings,
    }
    return RunSettings(run_id="run", **given)
