"""An orchestrator in this process, whose Groups are of a row's own tokens.

Their logprobs are those of a policy, and off by up to `noise` nats, as after some steps.
"""

import random
from array import array
from pathlib import Path
from typing import Any

import torch
from dapo import taken_logprobs
from transformers import AutoModelForCausalLM

from rollyard.client import Client
from rollyard.messages import (
    Batch,
    ChatMessage,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    RunSettings,
    Sampling,
    Trajectory,
    Turn,
    WeightSpan,
)
from rollyard.trainers.nemo_rl import DataloaderRows, Rollouts
from rollyard.training_run import TrainingRun
from tests.real_nemo_rl.grpo import GROUP_SIZE, TEMPERATURE
from tests.rollyard.fake_orchestrator import OrchestratorForTrainers

VOCABULARY = 200
PROMPT_TOKENS = 6


class SampledGroups(OrchestratorForTrainers):
    """Prompts begin with the tokens of the row's `prompt`, or of its own; those of a `split` row's
    members end with other tokens each."""

    def __init__(
        self, policy_dir: Path, *, noise: float = 0.4, members: int = GROUP_SIZE, behind: int = 0
    ) -> None:
        """The last member's tokens are `behind` weight versions old."""
        super().__init__()
        self._policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)
        self._noise = noise
        self._members = members
        self._behind = behind

    def group(self, prompt: Prompt) -> Group:
        results = tuple(self._member(prompt, member) for member in range(self._members))
        return Group(group_id=prompt.prompt_id, prompt=prompt, results=results)

    def _member(self, prompt: Prompt, member: int) -> Result:
        return Result(
            lease=Lease(
                job_id=f"run/{prompt.prompt_id}/{member}", attempt=1, server_id="a", slot="a#0"
            ),
            outcome=Outcome.COMPLETED,
            grade=Grade(reward=reward_of(prompt.instance["row"], member)),
            trajectory=self._trajectory(prompt.instance, member),
        )

    def _trajectory(self, row: dict[str, Any], member: int) -> Trajectory:
        seeded = random.Random(1000 * row["row"] + member)
        first = random.Random(row.get("prompt", row["row"]))
        last = member == self._members - 1
        version = max(self.served - self._behind * last, 0)
        mask = [0] * PROMPT_TOKENS
        turns = []
        for turn in range(0 if row.get("empty") and member == 0 else seeded.randint(1, 3)):
            start = len(mask)
            mask += [1] * seeded.randint(3, 9)
            turns.append(Turn(start=start, end=len(mask), finish_reason="stop"))
            mask += [0] * (2 + turn)
        token_ids = [first.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)]
        token_ids += [seeded.randrange(VOCABULARY) for _ in mask[PROMPT_TOKENS:]]
        if row.get("split"):
            token_ids[PROMPT_TOKENS - 2 : PROMPT_TOKENS] = [member, member + 1]
        return Trajectory(
            token_ids=array("i", token_ids),
            loss_mask=array("b", mask),
            logprobs=array("f", self._logprobs(token_ids, mask, seeded)),
            weight_spans=tuple(
                WeightSpan(version=version, start=turn.start, end=turn.end) for turn in turns
            ),
            turns=tuple(turns),
            messages=(ChatMessage(role="user", content="?"),),
            truncated=last,
        )

    def _logprobs(
        self, token_ids: list[int], mask: list[int], seeded: random.Random
    ) -> list[float]:
        with torch.no_grad():
            exact = taken_logprobs(self._policy, torch.tensor([token_ids]), temperature=TEMPERATURE)
        return [
            min(each + seeded.uniform(-self._noise, self._noise), 0.0) if sampled else 0.0
            for each, sampled in zip(exact[0].tolist(), mask, strict=True)
        ]


def reward_of(row: int, member: int) -> float:
    return round(random.Random(f"{row} {member}").random(), 3)


class Seen(TrainingRun):
    """Remembers the Batches that it returned, and those that were acknowledged."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.returned: list[Batch] = []
        self.acknowledged: list[str] = []

    def rollout(self, *given: Any, **named: Any) -> Batch:
        self.returned.append(super().rollout(*given, **named))
        return self.returned[-1]

    def ack(self, batch: Batch) -> None:
        super().ack(batch)
        self.acknowledged.append(batch.batch_id)


def run_on(orchestrator: SampledGroups, dataloader: Any, **settings: Any) -> Seen:
    given = {
        "group_size": GROUP_SIZE,
        "sampling": Sampling(temperature=TEMPERATURE),
        "max_staleness": 0,
        **settings,
    }
    rows = DataloaderRows(dataloader)
    return Seen(orchestrator.take_over(), RunSettings(run_id="run", **given), rows)


class Evaluations(Client):
    """A client whose other Runs have an orchestrator each."""

    def __init__(self, policy_dir: Path) -> None:
        super().__init__("http://127.0.0.1:9", token="none", show_progress=False)
        self._policy_dir = policy_dir
        self.settings: list[RunSettings] = []

    def run(self, dataloader: Any, **given: Any) -> TrainingRun:
        self.settings.append(RunSettings(**given))
        members = self.settings[-1].group_size
        orchestrator = SampledGroups(self._policy_dir, members=members)
        return TrainingRun(orchestrator.take_over(), self.settings[-1], dataloader)


def rollouts_of(run: Seen, directory: Path, policy_dir: Path, **given: Any) -> Rollouts:
    return Rollouts(Evaluations(policy_dir), run, directory / "published", **given)
