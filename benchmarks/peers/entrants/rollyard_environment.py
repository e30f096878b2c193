"""The episodes as an environment of Rollyard, of another package than its own."""

from agent_server.environments.protocol import Observation, Opening, Response
from agent_server.sandbox.protocol import Sandbox
from benchmarks.peers.entrants import sums
from rollyard.messages import ChatMessage, Prompt, ToolSchema

_TOOL = ToolSchema(name="add", description="Add two numbers.", parameters=sums.PARAMETERS)


class Sums:
    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._question = int(prompt.instance["question"])
        self._last_word = ""
        asked = ChatMessage(role="user", content=sums.text(self._question))
        return Opening(messages=(asked,), tools=(_TOOL,))

    def step(self, response: Response) -> Observation:
        if not response.calls:
            self._last_word = response.text
            return Observation(done=True)
        results = [str(sums.add(**call.arguments)) for call in response.calls]
        return Observation(
            messages=tuple(
                ChatMessage(role="tool", content=result, tool_call_id=call.call_id)
                for call, result in zip(response.calls, results, strict=True)
            )
        )

    def grade(self) -> float:
        return sums.reward(self._question, self._last_word)
