"""Trajectories as the answers of NeMo-Gym's contract.

- The last item of a sampled message has the tokens of its turn. The prompt of each begins with all
  tokens of those before it.
- Items of sequences before the last one have none: a consumer that goes by the tokens sees one
  sequence, and nothing that the template wrote anew.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from agent_server.agents.protocol import Task
from agent_server.agents.tool_calls.reasoning import split_reasoning
from agent_server.nemo_gym.messages import GymResponse, RunAnswer, TokenCounts
from agent_server.nemo_gym.rows import PARAMETERS
from agent_server.prorl.transcript import earlier_told
from rollyard.messages import ChatMessage, Grade, ToolCall, Trajectory, Turn

Item = dict[str, Any]


def answer(row: dict[str, Any], grade: Grade, trajectory: Trajectory, task: Task) -> RunAnswer:
    asked = row[PARAMETERS]
    if not asked.get("input"):
        asked = {**asked, "input": [_given(message) for message in task.opening.messages]}
    turns = _turns(trajectory)
    whole = math.isclose(sum(grade.components.values()), grade.reward, rel_tol=1e-6, abs_tol=1e-7)
    return RunAnswer(
        reward=grade.reward,
        response=_response(trajectory, task),
        responses_create_params=asked,
        truncated=trajectory.truncated,
        turns=len(turns),
        reward_components=grade.components if whole else {},
    )


def _response(trajectory: Trajectory, task: Task) -> GymResponse:
    limited = trajectory.truncated
    return GymResponse(
        id=f"resp_{task.name.rpartition('/')[2]}",
        created_at=time.time(),
        output=tuple(_items(trajectory, task)),
        status="incomplete" if limited else "completed",
        incomplete_details={"reason": "max_output_tokens"} if limited else None,
        usage=_usage(trajectory),
        tools=tuple(
            {"type": "function", "strict": False, **tool.as_function()["function"]}
            for tool in task.opening.tools
        ),
        earlier=earlier_told(trajectory),
    )


def _items(trajectory: Trajectory, task: Task) -> Iterator[Item]:
    messages, last = trajectory.messages, len(trajectory.turns)
    written = [place for place, each in enumerate(messages) if each.role == "assistant"]
    sampled = written[len(written) - len(_turns(trajectory)) :]
    turns = dict(zip(sampled[len(sampled) - last :], trajectory.turns, strict=True))
    for place in range(sampled[0] if sampled else 0, len(messages)):
        message = messages[place]
        if place not in sampled:
            yield _given(message)
            continue
        *others, ended = _said(message, place, task)
        yield from others
        yield ended | (_tokens(trajectory, turns[place]) if place in turns else {})


def _given(message: ChatMessage) -> Item:
    """A message that was not sampled."""
    if message.role == "tool" and message.tool_call_id:
        return {
            "type": "function_call_output",
            "call_id": message.tool_call_id,
            "output": message.content,
        }
    role = "user" if message.role == "tool" else message.role
    return {"type": "message", "role": role, "content": message.content}


def _said(message: ChatMessage, number: int, task: Task) -> list[Item]:
    """A sampled message: one item at least."""
    items: list[Item] = []
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        items.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary})
    if (text := _text(message, task)) or not message.tool_calls:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        told = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        items.append({**told, "status": "completed", "content": content})
    return [*items, *map(_call, message.tool_calls)]


def _text(message: ChatMessage, task: Task) -> str:
    """What it says beside its reasoning and its calls."""
    _, text = split_reasoning(message.content, opened=bool(message.reasoning))
    if not message.tool_calls:
        return text.strip()
    parts = task.template.tool_calls.find(text, task.opening.tools)
    return "".join(part for part in parts if isinstance(part, str)).strip()


def _call(call: ToolCall) -> Item:
    return {
        "id": f"fc_{call.call_id}",
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": json.dumps(call.arguments, ensure_ascii=False),
        "status": "completed",
    }


def _tokens(trajectory: Trajectory, turn: Turn) -> Item:
    return {
        "prompt_token_ids": trajectory.token_ids[: turn.start].tolist(),
        "generation_token_ids": trajectory.token_ids[turn.start : turn.end].tolist(),
        "generation_log_probs": trajectory.logprobs[turn.start : turn.end].tolist(),
    }


def _usage(trajectory: Trajectory) -> TokenCounts:
    turns = _turns(trajectory)
    read, written = sum(t.start for t in turns), sum(t.end - t.start for t in turns)
    return TokenCounts(
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
        input_tokens_details={"cached_tokens": 0},
        output_tokens_details={"reasoning_tokens": 0},
    )


def _turns(trajectory: Trajectory) -> Sequence[Turn]:
    return [turn for sequence in trajectory.sequences for turn in sequence.turns]
