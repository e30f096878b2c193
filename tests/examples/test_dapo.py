import math
from pathlib import Path

import msgspec
import pytest
import torch
from dapo import (
    NOT_SAMPLED,
    TrainingBatch,
    dapo_loss,
    group_advantages,
    largest_gap,
    taken_logprobs,
    to_tensors,
    token_versions,
)
from transformers import AutoModelForCausalLM

from rollyard.messages import WeightSpan
from tests.trajectories import batch, group, trajectory

PAD = 256


def training_batch(
    mask: list[list[int]], behaviour: list[list[float]], advantages: list[float]
) -> TrainingBatch:
    loss_mask = torch.tensor(mask, dtype=torch.bool)
    return TrainingBatch(
        token_ids=torch.zeros(loss_mask.shape, dtype=torch.int64),
        loss_mask=loss_mask,
        behaviour_logprobs=torch.tensor(behaviour),
        weight_versions=torch.where(loss_mask, 0, NOT_SAMPLED),
        advantages=torch.tensor(advantages),
    )


def gradient(logprobs: list[list[float]], data: TrainingBatch) -> torch.Tensor:
    values = torch.tensor(logprobs, requires_grad=True)
    dapo_loss(values, data).backward()
    assert values.grad is not None
    return values.grad


def test_advantages_are_rewards_in_standard_deviations_from_the_groups_mean() -> None:
    advantages = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    deviation = math.sqrt(3) / 4
    assert advantages.tolist() == pytest.approx([0.75 / deviation, *[-0.25 / deviation] * 3])


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
def test_a_group_with_equal_rewards_has_zero_advantage(reward: float) -> None:
    assert group_advantages(torch.tensor([reward] * 7)).tolist() == [0.0] * 7


def test_loss_of_on_policy_tokens_is_minus_the_mean_advantage_per_token() -> None:
    data = training_batch(
        [[0, 1, 1, 1], [0, 1, 0, 0]], [[0, -1, -1, -1], [0, -1, 0, 0]], [2.0, -1.0]
    )
    loss = dapo_loss(data.behaviour_logprobs, data)
    # Three tokens of advantage 2 and one of -1; a mean over sequences would give -0.5.
    assert loss.item() == pytest.approx(-(3 * 2.0 - 1.0) / 4)


def test_loss_equals_a_hand_computed_value_off_policy() -> None:
    data = training_batch([[1, 1], [1, 0]], [[-1.0, -2.0], [-0.5, 0.0]], [1.0, -1.0])
    logprobs = torch.tensor([[-0.9, -1.0], [-0.7, 9.0]])
    # ratios: e^0.1 (inside), e^1 (clipped to 1.28, advantage 1); e^-0.2 (inside), advantage -1
    expected = -(math.exp(0.1) + 1.28 - math.exp(-0.2)) / 3
    assert dapo_loss(logprobs, data).item() == pytest.approx(expected)


def test_masked_tokens_get_no_gradient() -> None:
    data = training_batch([[0, 1, 0, 1]], [[0.0, -1.0, 0.0, -1.0]], [1.0])
    assert gradient([[-5.0, -1.0, 3.0, -1.0]], data)[0].tolist() == pytest.approx(
        [0, -0.5, 0, -0.5]
    )


def test_every_token_weighs_the_same_in_long_and_short_responses() -> None:
    data = training_batch(
        [[1, 1, 1, 1], [1, 0, 0, 0]], [[-1.0] * 4, [-1.0, 0.0, 0.0, 0.0]], [1.0, 1.0]
    )
    grads = gradient([[-1.0] * 4, [-1.0, 0.0, 0.0, 0.0]], data)
    assert grads[0].tolist() == pytest.approx([-0.2] * 4)
    assert grads[1].tolist() == pytest.approx([-0.2, 0, 0, 0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [
        (1.27, 1.0, True),  # a good token may rise to 1.28 ...
        (1.29, 1.0, False),  # ... and no further,
        (0.81, -1.0, True),  # a bad one may fall to 0.8 ...
        (0.79, -1.0, False),  # ... and no further,
        (1.29, -1.0, True),  # and what went the wrong way may always come back.
        (0.79, 1.0, True),
    ],
)
def test_the_clip_leaves_more_room_above_than_below(
    ratio: float, advantage: float, moves: bool
) -> None:
    data = training_batch([[1]], [[-1.0]], [advantage])
    assert bool(gradient([[-1.0 + math.log(ratio)]], data)[0, 0] != 0) is moves


def test_a_batch_is_padded_to_its_longest_trajectory() -> None:
    short = trajectory(("given", [1, 2]), ("sampled", [3]))
    long = trajectory(("given", [1]), ("sampled", [4, 5]), ("given", [6]), ("sampled", [7]))
    data = to_tensors(batch(group("a", (1.0, short), (0.0, long))), pad_token_id=PAD)
    assert data.token_ids.tolist() == [[1, 2, 3, PAD, PAD], [1, 4, 5, 6, 7]]
    assert data.loss_mask.int().tolist() == [[0, 0, 1, 0, 0], [0, 1, 1, 0, 1]]
    assert data.behaviour_logprobs.tolist() == [[0, 0, -1, 0, 0], [0, -1, -1, 0, -1]]
    assert data.advantages.tolist() == [1.0, -1.0]


def test_each_sequence_of_a_trajectory_is_trained_with_the_trajectorys_advantage() -> None:
    earlier = trajectory(("given", [1]), ("sampled", [2]))
    split = msgspec.structs.replace(
        trajectory(("given", [3, 4]), ("sampled", [5])), earlier=(earlier,)
    )
    data = to_tensors(batch(group("a", (0.0, earlier), (1.0, split))), pad_token_id=PAD)
    assert data.token_ids.tolist() == [[1, 2, PAD], [1, 2, PAD], [3, 4, 5]]
    assert data.advantages.tolist() == [-1.0, 1.0, 1.0]


def test_advantages_compare_members_of_their_own_group_only() -> None:
    tokens = trajectory(("given", [1]), ("sampled", [2]))
    data = to_tensors(
        batch(
            group("a", (1.0, tokens), (0.0, tokens)),
            group("b", (0.0, tokens), (0.0, tokens), (1.0, tokens), (1.0, tokens)),
        ),
        pad_token_id=PAD,
    )
    assert data.advantages.tolist() == [1, -1, -1, -1, 1, 1]


def test_logprobs_of_taken_tokens_are_the_models_and_ignore_padding(policy_dir: Path) -> None:
    policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32).eval()
    tokens = torch.tensor([[257, 84, 16, 258]])
    with torch.no_grad():
        own = policy(tokens).logits.log_softmax(-1)[0]
        taken = taken_logprobs(policy, torch.cat([tokens, torch.full((1, 3), PAD)], dim=1))[0]
    expected = [0.0, *(own[position, tokens[0, position + 1]].item() for position in range(3))]
    assert taken[:4].tolist() == pytest.approx(expected, abs=1e-5)


def test_logprobs_of_taken_tokens_are_those_at_the_temperature_they_were_sampled_at(
    policy_dir: Path,
) -> None:
    policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32).eval()
    tokens = torch.tensor([[257, 84, 16, 258]])
    with torch.no_grad():
        at_half = (policy(tokens).logits / 0.5).log_softmax(-1)[0]
        taken = taken_logprobs(policy, tokens, temperature=0.5)[0]
    expected = [0.0, *(at_half[position, tokens[0, position + 1]].item() for position in range(3))]
    assert taken.tolist() == pytest.approx(expected, abs=1e-5)


def test_each_token_is_compared_with_the_weights_that_sampled_it() -> None:
    both = trajectory(
        ("given", [1]), ("sampled", [2]), ("given", [3]), ("sampled", [4]), versions=(3, 4)
    )
    assert token_versions(both).tolist() == [NOT_SAMPLED, 3, NOT_SAMPLED, 4]
    data = to_tensors(batch(group("a", (1.0, both), (0.0, both))), pad_token_id=PAD)
    trainer = torch.full(data.token_ids.shape, -1.25)
    trainer[:, 1] = -9.0
    assert largest_gap(trainer, data, version=4) == pytest.approx(0.25)
    assert largest_gap(trainer, data, version=3) == pytest.approx(8.0)
    assert largest_gap(trainer, data, version=5) == 0.0


def test_a_response_whose_weights_changed_midway_counts_for_each_with_its_own_tokens() -> None:
    whole = trajectory(("given", [1]), ("sampled", [2, 3]))
    spans = tuple(WeightSpan(version=v, start=v + 1, end=v + 2) for v in (0, 1))
    mixed = msgspec.structs.replace(whole, weight_spans=spans)
    assert token_versions(mixed).tolist() == [NOT_SAMPLED, 0, 1]
    data = to_tensors(batch(group("a", (1.0, mixed), (0.0, mixed))), pad_token_id=PAD)
    trainer = torch.tensor([[0.0, -5.0, -1.5]] * 2)
    assert largest_gap(trainer, data, version=1) == pytest.approx(0.5)
    assert largest_gap(trainer, data, version=0) == pytest.approx(4.0)
