"""An orchestrator whose Groups are of random tokens, of several turns and lengths."""

import random
from array import array

from rollyard.messages import (
    ChatMessage,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    Trajectory,
    Turn,
    WeightSpan,
)
from tests.rollyard.fake_orchestrator import OrchestratorForTrainers

GROUP_SIZE = 4
VOCABULARY = 200


class RandomGroups(OrchestratorForTrainers):
    def group(self, prompt: Prompt) -> Group:
        seeded = random.Random(prompt.prompt_id)
        results = tuple(self._member(prompt, member, seeded) for member in range(GROUP_SIZE))
        return Group(group_id=prompt.prompt_id, prompt=prompt, results=results)

    def _member(self, prompt: Prompt, member: int, seeded: random.Random) -> Result:
        return Result(
            lease=Lease(
                job_id=f"run/{prompt.prompt_id}/{member}", attempt=1, server_id="a", slot="a#0"
            ),
            outcome=Outcome.COMPLETED,
            grade=Grade(reward=float(member % 2)),
            trajectory=self._trajectory(seeded),
        )

    def _trajectory(self, seeded: random.Random) -> Trajectory:
        mask = [0] * 5
        turns = []
        for turn in range(seeded.randint(1, 3)):
            start = len(mask)
            mask += [1] * seeded.randint(1, 6)
            turns.append(Turn(start=start, end=len(mask), finish_reason="stop"))
            mask += [0] * (2 + turn)
        return Trajectory(
            token_ids=array("i", [seeded.randrange(VOCABULARY) for _ in mask]),
            loss_mask=array("b", mask),
            logprobs=array("f", [each * -5.0 * seeded.random() for each in mask]),
            weight_spans=tuple(
                WeightSpan(version=self.served, start=turn.start, end=turn.end) for turn in turns
            ),
            turns=tuple(turns),
            messages=(ChatMessage(role="user", content="?"),),
            truncated=seeded.random() < 0.2,
        )
