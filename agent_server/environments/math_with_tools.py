"""Mathematical problems for an agent that may compute in Python, and answers by `finish`.

A response without a call ends the episode as well, and its box is the answer.
"""

from agent_server.environments.math import Math
from agent_server.environments.protocol import Needs, Observation, Opening, Response
from agent_server.rewards.answers import last_boxed
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from agent_server.tools.python import Python
from agent_server.tools.submit import Submit
from agent_server.tools.toolbox import Toolbox
from rollyard.messages import Prompt

_FINISH = Submit(
    "finish",
    "Give your final answer and end the task.",
    {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The answer, in LaTeX."}},
        "required": ["answer"],
    },
)
_TOOLBOX = Toolbox((Python(), _FINISH))


class MathWithTools(Math):
    needs = Needs(rewards=True, sandbox=SandboxNeeds(programs=("python3",)))

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._sandbox = sandbox
        return Opening(messages=super().start(prompt, sandbox).messages, tools=_TOOLBOX.schemas)

    def step(self, response: Response) -> Observation:
        if not response.calls and not response.malformed:
            return super().step(response)
        answers = _TOOLBOX.answer(response, self._sandbox)
        if answers.submitted is None:
            return Observation(messages=answers.messages)
        answer = str(answers.submitted["answer"])
        self.answer = answer if last_boxed(answer) else rf"\boxed{{{answer}}}"
        return Observation(done=True)
