"""What NeMo-RL's own step computes on a Batch is what the plain loop does."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dapo import dapo_loss, taken_logprobs, to_tensors

from rollyard.messages import Batch
from rollyard.trainers import advantages
from rollyard.trainers.sequences import rewards, training_sequences
from tests.real_nemo_rl.grpo import GROUP_SIZE, GROUPS, STEPS, TEMPERATURE, Policy, Training, config
from tests.real_nemo_rl.sampled import SampledGroups, Seen, rollouts_of, run_on

ROWS = [{"row": number} for number in range(GROUPS * STEPS)]
Advantages = Callable[..., Any]


def grpo_of_a_sample(*given: Any) -> Any:
    """As NeMo-RL's: the deviation of a sample, plus 1e-6."""
    return advantages.grpo(*given, correction=1, epsilon=1e-6)


@dataclasses.dataclass
class Gaps:
    """How far each step's numbers are from the plain loop's, and what they are."""

    loss: list[float]
    advantage: list[float]
    gradient: list[float]
    losses: list[float]
    clipped: list[float]

    def __str__(self) -> str:
        return (
            f"{len(self.loss)} steps, losses {min(self.losses):.4f} to "
            f"{max(self.losses):.4f}, clipped {max(self.clipped):.0%}; furthest from the plain "
            f"loop: loss {max(self.loss):.1e}, advantage {max(self.advantage):.1e}, gradient "
            f"{max(self.gradient):.1e} of the largest"
        )


class Compared:
    """Compares each step of NeMo-RL with the plain loop's on the same Batch."""

    def __init__(self, plain: Advantages = grpo_of_a_sample) -> None:
        self.gaps = Gaps([], [], [], [], [])
        self.run: Seen | None = None
        self._plain = plain

    def trained(self, policy: Policy, data: Any) -> None:
        assert self.run is not None
        batch = self.run.returned[-1]
        ours = self._plain(*rewards(batch))
        theirs = data["advantages"][:, 0].numpy()
        self.gaps.advantage.append(float(np.abs(ours - theirs).max()))
        gradient = [each.grad.clone() for each in policy.model.parameters()]
        policy.model.zero_grad()
        loss, clipped = plain_loss(policy.model, batch, ours)
        loss.backward()
        plain = [each.grad for each in policy.model.parameters()]
        largest = max(each.abs().max().item() for each in plain)
        apart = (
            (one - other).abs().max().item() for one, other in zip(gradient, plain, strict=True)
        )
        self.gaps.gradient.append(max(apart) / largest)
        self.gaps.loss.append(abs(loss.item() - policy.loss))
        self.gaps.losses.append(policy.loss)
        self.gaps.clipped.append(clipped)
        for parameter, own in zip(policy.model.parameters(), gradient, strict=True):
            parameter.grad = own


def plain_loss(model: Any, batch: Batch, found: Any) -> tuple[torch.Tensor, float]:
    """The example's loss, and the share of tokens whose ratio is out of bounds."""
    tensors = to_tensors(batch, pad_token_id=0)
    tensors = dataclasses.replace(tensors, advantages=torch.from_numpy(found).float())
    logprobs = taken_logprobs(model, tensors.token_ids, temperature=TEMPERATURE)
    ratio = (logprobs - tensors.behaviour_logprobs).exp()[tensors.loss_mask]
    clipped = ((ratio < 0.8) | (ratio > 1.28)).float().mean().item()
    return dapo_loss(logprobs, tensors), clipped


@dataclasses.dataclass
class Case:
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=lambda: ROWS)
    noise: float = 0.4
    steps: int = STEPS
    plain: Advantages = grpo_of_a_sample
    loss: dict[str, Any] = dataclasses.field(default_factory=dict)
    estimator: dict[str, Any] = dataclasses.field(default_factory=dict)
    clip_around_sampled: bool = True


def gaps_of(case: Case, directory: Path, policy_dir: Path) -> Gaps:
    compared = Compared(case.plain)
    settings = config(directory, steps=case.steps, loss=case.loss)
    settings.grpo.adv_estimator = settings.grpo.adv_estimator.model_copy(update=case.estimator)
    training = Training(settings, policy_dir, case.rows, compared.trained)
    compared.run = run_on(SampledGroups(policy_dir, noise=case.noise), training.dataloader)
    around = case.clip_around_sampled
    training.train(rollouts_of(compared.run, directory, policy_dir, clip_around_sampled=around))
    return compared.gaps


@pytest.mark.parametrize(
    ("what", "case"),
    [
        ("old logprobs of the samplers", Case()),
        (
            "corrected by importance sampling, nothing clipped",
            Case(
                noise=0.1,
                steps=1,
                loss={"use_importance_sampling_correction": True},
                clip_around_sampled=False,
            ),
        ),
        (
            "RLOO's advantages",
            Case(
                plain=advantages.rloo,
                estimator={"use_leave_one_out_baseline": True, "normalize_rewards": False},
            ),
        ),
        (
            "prompts that are twice in a batch",
            Case(rows=[{**row, "prompt": 7} for row in ROWS]),
        ),
        ("prompts that end differently", Case(rows=[{**row, "split": True} for row in ROWS])),
        ("trajectories without tokens", Case(rows=[{**row, "empty": True} for row in ROWS])),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_loss_advantages_and_gradient_are_the_plain_loops(
    what: str,
    case: Case,
    tmp_path: Path,
    policy_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gaps = gaps_of(case, tmp_path, policy_dir)
    with capsys.disabled():
        print(f"\n{what}: {gaps}")
    assert len(gaps.loss) == case.steps
    assert max(gaps.loss) < 1e-5
    assert max(gaps.advantage) < 1e-5
    assert max(gaps.gradient) < 1e-5
    assert max(map(abs, gaps.losses)) > 1e-2
    assert (max(gaps.clipped) > 0.05) == (case.noise > 0.2)


def test_what_its_loss_is_on_are_the_batchs_tokens(tmp_path: Path, policy_dir: Path) -> None:
    seen: list[Any] = []
    training = Training(
        config(tmp_path, steps=2), policy_dir, ROWS, lambda _, data: seen.append(data)
    )
    run = run_on(SampledGroups(policy_dir), training.dataloader)
    training.train(rollouts_of(run, tmp_path, policy_dir))
    names = ("input_ids", "token_mask", "generation_logprobs")
    for batch, data in zip(run.returned, seen, strict=True):
        sequences = training_sequences(batch)
        assert len(data["input_ids"]) == len(sequences) == GROUPS * GROUP_SIZE
        for number, sequence in enumerate(sequences):
            end = int(sequence.loss_mask.nonzero()[0][-1]) + 1
            token_ids, mask, logprobs = (data[name][number] for name in names)
            assert token_ids[:end].tolist() == sequence.token_ids[:end].tolist()
            assert mask[:end].bool().tolist() == sequence.loss_mask[:end].tolist()
            assert logprobs[:end].tolist() == sequence.logprobs[:end].tolist()
            assert not mask[end:].any()
