"""The environment whose world is an OpenEnv server's.

A row names the server: `{"data_source": "openenv", "url": "http://127.0.0.1:8000", "question": ...,
"reset": {"seed": 7}}`. How the policy acts follows from the server's schema of actions:

- an action with one text, such as a move, is the whole response;
- any other action is a call of the tool `act`, with the action's fields as arguments;
- where actions are calls of tools (MCP), the policy is offered these tools.

Where there are tools, a response without a call ends the episode. The reward is the sum of what the
server gave for the steps.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agent_server.environments.openenv.session import ActionRefused, OpenEnvSession, Seen
from agent_server.environments.protocol import EnvironmentFailed, Observation, Opening, Response
from agent_server.sandbox.protocol import Sandbox
from agent_server.tools.arguments import check_arguments
from agent_server.tools.protocol import ToolError
from rollyard.codec import learnt
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.messages import ChatMessage, Grade, Prompt, ToolCall, ToolSchema, check, check_url

_ACT = "act"
_FIX = 'a row is {"data_source": "openenv", "url": "http://127.0.0.1:8000", "reset": {"seed": 7}}'


class OpenEnvRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says of its episode."""

    url: str
    question: str = ""
    """Text before the first observation."""
    reset: dict[str, Any] = {}
    """Arguments of the environment's reset, such as a seed."""
    action: str = ""
    """Field of the action that a response is; empty if the server's schema says it."""
    observation: str = ""
    """Field of the observations that the policy is shown; empty for all."""
    seconds: float = 60.0
    """Time for each answer of the server."""

    def __post_init__(self) -> None:
        check_url(self.url)
        check(self.seconds > 0, f"seconds must be positive, got {self.seconds}")


class OpenEnv:
    def __init__(self) -> None:
        self._session: OpenEnvSession | None = None
        self._field = ""
        """Field of the action that is the policy's whole response; empty where it calls tools."""
        self._tools: dict[str, ToolSchema] = {}
        self._is_mcp = False
        self._rewards: list[float] = []
        self._figures: dict[str, float] = {}
        self._steps = 0
        self._done = False

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._row = row = _row(prompt.instance)
        self._session = OpenEnvSession(row.url, row.seconds)
        try:
            first = self._session.reset(row.reset)
        except ActionRefused as error:
            raise InvalidMessage(f"the row's reset is refused: {error}", fix=_FIX) from error
        if first.done:
            raise InvalidMessage("the episode is over before it began", fix="leave the row out")
        self._learn_actions(self._session)
        shown = "\n\n".join(part for part in (row.question, self._shown(first.observation)) if part)
        return Opening(
            messages=(ChatMessage(role="user", content=shown),), tools=tuple(self._tools.values())
        )

    def step(self, response: Response) -> Observation:
        if self._field:
            shown = self._act({self._field: response.content})
            return Observation(messages=(ChatMessage(role="user", content=shown),), done=self._done)
        answers = tuple(self._answers(response))
        return Observation(messages=answers, done=self._done or not answers)

    def grade(self) -> Grade:
        if self._done and not self._rewards:
            raise EnvironmentFailed(
                f"the OpenEnv server at {self._row.url} ended the episode and gave it no reward",
                fix="an environment to train on gives its observations a reward",
            )
        total, ended = sum(self._rewards), "ended" if self._done else "was not ended"
        return Grade(
            reward=total,
            components={"return": total},
            metrics={**self._figures, "steps": float(self._steps), "ended": float(self._done)},
            reason=f"the episode {ended} after {self._steps} steps with return {total:g}",
        )

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _learn_actions(self, session: OpenEnvSession) -> None:
        if self._row.action:
            self._field = self._row.action
            return
        schema = session.action_schema()
        # Metadata are in every action, and are not the policy's.
        fields = {k: v for k, v in schema.get("properties", {}).items() if k != "metadata"}
        required = [name for name in schema.get("required", ()) if name in fields]
        self._is_mcp = not fields or {"tool_name", "arguments"} <= fields.keys()
        if self._is_mcp:
            listed = session.step({"type": "list_tools"}).observation.get("tools")
            self._tools = {tool.name: tool for tool in map(_tool, listed or ())}
        elif len(required) == 1 and fields[required[0]].get("type") == "string":
            self._field = required[0]
        else:
            taken = {"type": "object", "properties": fields, "required": required}
            taken |= {"$defs": schema["$defs"]} if "$defs" in schema else {}
            self._tools = {_ACT: ToolSchema(_ACT, schema.get("description", "Act."), taken)}

    def _answers(self, response: Response) -> Iterator[ChatMessage]:
        """Messages to the policy about its calls, which are carried out one after the other."""
        for call in response.calls:
            if self._done:
                return
            shown = self._call(call)
            yield ChatMessage(role="tool", content=shown, tool_call_id=call.call_id, name=call.name)
        for reason in response.malformed:
            yield ChatMessage(role="tool", content=f"error: {reason}")

    def _call(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: there is no such tool; the tools are: {', '.join(self._tools)}"
        try:
            check_arguments(call.arguments, tool)
        except ToolError as error:
            return f"error: {error}"
        if not self._is_mcp:
            return self._act(call.arguments)
        return self._act({"type": "call_tool", "tool_name": call.name, "arguments": call.arguments})

    def _act(self, action: Mapping[str, Any]) -> str:
        """Take one step, and return what the policy is shown of it."""
        assert self._session is not None, "start comes first"
        try:
            seen = self._session.step(action)
        except ActionRefused as error:
            return f"error: that is no valid action: {error}"
        self._note(seen)
        return _result(seen.observation) if self._is_mcp else self._shown(seen.observation)

    def _note(self, seen: Seen) -> None:
        self._steps += 1
        self._done = seen.done
        if seen.reward is not None:
            self._rewards.append(float(seen.reward))
        self._figures |= {
            name: float(figure)
            for name, figure in (seen.metadata or {}).items()
            if isinstance(figure, int | float)
        }

    def _shown(self, observation: Mapping[str, Any]) -> str:
        if not self._row.observation:
            if not observation:  # an environment of tools may show nothing at first
                return ""
            return _text(next(iter(observation.values())) if len(observation) == 1 else observation)
        if self._row.observation in observation:
            return _text(observation[self._row.observation])
        raise InvalidMessage(
            f"an observation has no {self._row.observation!r}, but {', '.join(observation)}",
            fix="name one of them in the row's observation, or leave it out",
        )


def _row(instance: Mapping[str, Any]) -> OpenEnvRow:
    try:
        return msgspec.convert(instance, learnt(OpenEnvRow))
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"the openenv row is not usable: {error}", fix=_FIX) from error


def _tool(listed: Mapping[str, Any]) -> ToolSchema:
    return ToolSchema(listed["name"], listed.get("description", ""), listed["input_schema"])


def _result(observation: Mapping[str, Any]) -> str:
    """What a call gave. Raises `Unavailable` if the server's tool could not be reached."""
    error = observation.get("error")
    if isinstance(error, dict):
        if error.get("error_type") == "transport_error":
            raise Unavailable(f"a tool of the OpenEnv server failed: {error.get('message')}")
        return f"error: {error.get('message')}"
    result = observation.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):  # as MCP gives it: parts, each with its type
        return "\n".join(str(part.get("text", part)) for part in content if isinstance(part, dict))
    return _text(result)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
