"""Programming problems for an agent with a shell, whose answer is the file that it leaves.

A response without a call ends the episode, as `submit` does: a program in its fence is the answer,
else the file is. Of all that the agent left, that file alone is looked at, and only if it is a
regular file of a program's size.
"""

from agent_server.environments.code import Code
from agent_server.environments.protocol import Observation, Opening, Response
from agent_server.rewards.code import MAX_PROGRAM_BYTES, no_program
from agent_server.sandbox.protocol import FileRefused, Sandbox
from agent_server.tools.bash import Bash
from agent_server.tools.python import Python
from agent_server.tools.submit import Submit
from agent_server.tools.toolbox import Toolbox
from rollyard.messages import Grade, Prompt

SOLUTION = "/workspace/solution.py"
INSTRUCTION = f"Write a Python program that solves it to {SOLUTION}, try it, and submit."
_TOOLBOX = Toolbox((Bash(), Python(), Submit()))


class CodeWithTools(Code):
    instruction = INSTRUCTION

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        opening = super().start(prompt, sandbox)
        return Opening(messages=opening.messages, tools=_TOOLBOX.schemas)

    def step(self, response: Response) -> Observation:
        if not response.calls and not response.malformed:
            return super().step(response)
        answers = _TOOLBOX.answer(response, self.sandbox)
        return Observation(messages=answers.messages, done=answers.submitted is not None)

    def solve(self) -> None:
        super().solve()
        assert self.program is not None
        self.sandbox.write(SOLUTION, self.program)
        self.program = None

    def grade(self) -> Grade:
        if self.program is not None:
            return super().grade()
        try:
            left = self.sandbox.read(SOLUTION, most_bytes=MAX_PROGRAM_BYTES)
        except FileRefused as error:
            return no_program(f"the policy left no program: {error.message}")
        return self.graded(left)
