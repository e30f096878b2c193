"""Programming problems, whose answer is a Python program that passes all tests of the row.

The program stands in a fence of the policy's only response. It is graded in a fresh sandbox: it
alone crosses, and what the tests expect stays outside (see `rewards.programs`).
"""

from agent_server.environments import public_rows
from agent_server.environments.protocol import Needs, Observation, Opening, Response
from agent_server.rewards.answers import last_program
from agent_server.rewards.code import NEEDS, grade_program, no_program
from agent_server.rewards.program_tests import program_tests
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import Grade, Prompt


class Code:
    needs = Needs(sandbox=NEEDS, computes_grade=True)
    instruction = (
        "Write a Python program that solves it, in one block that starts with ```python and ends "
        "with ```."
    )

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        row = prompt.instance
        self.sandbox = sandbox
        self.program: bytes | None = None
        self._row = row
        self._tests = program_tests(public_rows.ground_truth(row), public_rows.extra_info(row))
        return Opening(messages=public_rows.messages(row, instruction=self.instruction))

    def step(self, response: Response) -> Observation:
        program = last_program(response.content)
        self.program = None if program is None else program.encode(errors="surrogatepass")
        return Observation(done=True)

    def solve(self) -> None:
        self.program = public_rows.solution(self._row).encode()

    def grade(self) -> Grade:
        if self.program is None:
            return no_program("the policy gave no program in a fence")
        return self.graded(self.program)

    def graded(self, program: bytes) -> Grade:
        with self.sandbox.fresh() as fresh:
            return grade_program(program, self._tests, fresh)
