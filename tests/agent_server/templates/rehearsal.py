"""A conversation with every kind of message, held through the agent with a policy that recites."""

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.agents.tool_loop import ToolLoop
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Observation, Opening, Response
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import (
    ChatMessage,
    Limits,
    Prompt,
    Sampling,
    ToolCall,
    ToolSchema,
    Trajectory,
)
from tests.agent_server.fakes import SandboxOfNothing, Says, make_job

SEARCH = ToolSchema(
    name="search",
    description="Search the web.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Words to search for."}},
        "required": ["query"],
    },
)
OPENING = (
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="What is 37*48?"),
)
SAID = (
    "<think>\nNobody knows.\n</think>\n\n  Searching for it: CALL",
    "Once more: <x> BOTH",
    "<think>Found.</think>It is 1776.",
    "Sure.",
)
"""Responses, where CALL is a call in the model's format, and BOTH are two. The user answers the
third, and the last ends the conversation."""
HEARD = (("no results",), ("37 * 48 = 1776", "also 48 * 37"), ("Are you sure?",))


class Rehearsal:
    """The environment of the conversation."""

    def __init__(self, tools: tuple[ToolSchema, ...]) -> None:
        self._tools = tools
        self._steps = 0

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        return Opening(messages=OPENING, tools=self._tools)

    def step(self, response: Response) -> Observation:
        self._steps += 1
        if self._steps > len(HEARD):
            return Observation(done=True)
        heard = HEARD[self._steps - 1]
        if self._steps == len(HEARD):
            return Observation(messages=tuple(ChatMessage(role="user", content=s) for s in heard))
        ids = [call.call_id for call in response.calls] or [""] * len(heard)
        return Observation(
            messages=tuple(
                ChatMessage(role="tool", content=said, tool_call_id=call, name=SEARCH.name)
                for said, call in zip(heard, ids, strict=True)
            )
        )

    def grade(self) -> float:
        return 1.0


def responses(template: ChatTemplate) -> list[str]:
    """What the policy says, in its own format of calls."""
    calls = [
        ToolCall(call_id=f"call0000{at}", name=SEARCH.name, arguments={"query": f"{at}*48"})
        for at in range(3)
    ]
    write = template.tool_calls.render
    return [
        said.replace("CALL", write(calls[:1])).replace("BOTH", write(calls[1:])) for said in SAID
    ]


def rehearse(
    template: ChatTemplate, tools: tuple[ToolSchema, ...] = (SEARCH,)
) -> tuple[Trajectory, Says]:
    """The whole conversation, and the policy with the requests that it got."""
    job = make_job(
        limits=Limits(max_turns=9, max_tokens=50_000), sampling=Sampling(max_response_tokens=1000)
    )
    policy = Says(template, *responses(template), version=2, end=template.stop_token_ids[0])
    episode = InThread(lambda: Rehearsal(tools))
    opening = episode.start(job.prompt, SandboxOfNothing())
    task = Task(
        name="rehearsal",
        job=job,
        opening=opening,
        prompt=template.prompt(opening.messages, opening.tools),
        environment=episode,
        policy=policy,
        template=template,
    )
    return ToolLoop(task).run(StopSignal()), policy
