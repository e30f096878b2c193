r"""Mathematical problems, whose answer is the last `\boxed{...}` of one response.

Rows are those of DeepScaleR and its like, or have `problem` and `answer`. The answer is graded by
`Rewards`, in a process that hostile LaTeX may hang or end.
"""

from agent_server.environments import public_rows
from agent_server.environments.protocol import Needs, Observation, Opening, Response
from agent_server.rewards.protocol import GroundTruth, Rewards, ScoreTask
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import Grade, Prompt

INSTRUCTION = r"Put your final answer within \boxed{}."
GRADER = "math"


class Math:
    needs = Needs(rewards=True)

    def __init__(self, rewards: Rewards) -> None:
        self._rewards = rewards
        self._gold: GroundTruth = ""
        self.answer: str | None = None
        """All that counts of what the policy wrote; None until it ends a response."""

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._gold = public_rows.ground_truth(prompt.instance)
        return Opening(messages=public_rows.messages(prompt.instance, instruction=INSTRUCTION))

    def step(self, response: Response) -> Observation:
        self.answer = response.content
        return Observation(done=True)

    def solve(self) -> None:
        gold = self._gold[0] if isinstance(self._gold, list) else self._gold
        self.answer = rf"\boxed{{{gold}}}"

    def grade(self) -> Grade:
        if self.answer is None:
            return Grade(
                reward=0.0,
                components={"correct": 0.0, "boxed": 0.0},
                reason="the policy did not end a response within its limits",
            )
        task = ScoreTask(data_source=GRADER, solution_str=self.answer, ground_truth=self._gold)
        return self._rewards.score(task)
