"""The path of a Job through every real process: trainer, orchestrator, agent server, LLM."""

import itertools
from collections.abc import Iterator
from typing import Any

from rollyard import Batch, Client, Limits, Sampling
from tests.deployment_fixtures import RunningDeployment, StartDeployment


def problems() -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        left, right = 10 + number % 90, 10 + number * 7 % 90
        yield {
            "data_source": "arithmetic",
            "instance_id": f"{left}x{right}",
            "question": f"{left}*{right}",
            "answer": str(left * right),
        }


def rollout(url: str, size: int) -> Batch:
    with Client(url).run(
        problems(),
        run_id="e2e",
        group_size=4,
        sampling=Sampling(max_response_tokens=24),
        limits=Limits(max_turns=3, max_tokens=256, job_seconds=60),
    ) as run:
        batch = run.rollout(size)
        run.finish()
    return batch


def assert_token_exact(batch: Batch) -> None:
    for group in batch.groups:
        rewards = {result.reward for result in group.results}
        assert len(rewards) > 1, "a group whose rewards are all equal teaches nothing"
        for result in group.results:
            trajectory = result.trajectory
            assert trajectory is not None
            sampled = [i for turn in trajectory.turns for i in range(turn.start, turn.end)]
            assert [i for i, m in enumerate(trajectory.loss_mask) if m] == sampled
            assert all(trajectory.logprobs[i] <= 0 for i in sampled)
            versions = [i for span in trajectory.weight_spans for i in range(span.start, span.end)]
            assert versions == sampled
            answered = trajectory.messages[-1].content.strip()
            right = answered.removesuffix("<|im_end|>") == group.prompt.instance["answer"]
            assert result.reward == float(right)


def test_a_batch_of_the_scripted_policy_is_exact(lasting_deployment: RunningDeployment) -> None:
    batch = rollout(lasting_deployment.url, size=6)
    assert len(batch.groups) == 6
    assert_token_exact(batch)


def test_a_batch_of_the_real_policy_is_exact_and_scores_as_it_was_sampled(
    start_deployment: StartDeployment,
) -> None:
    deployment = start_deployment("--slots", "8")
    batch = rollout(deployment.url, size=4)
    assert len(batch.groups) == 4
    assert_token_exact(batch)
    run = Client(deployment.url).run(problems(), run_id="score", group_size=2)
    for result in batch.groups[0].results:
        assert result.trajectory is not None
        (scores,) = run.score(result.trajectory.token_ids).values()
        gaps = [
            abs(scored - sampled)
            for scored, sampled, mask in zip(
                scores, result.trajectory.logprobs, result.trajectory.loss_mask, strict=True
            )
            if mask
        ]
        assert max(gaps) <= 1e-3
