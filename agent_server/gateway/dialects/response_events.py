"""Answers of OpenAI's responses, whole and in events: items one after the other."""

import time
from collections.abc import Iterator
from typing import Any

from agent_server.gateway.dialects.protocol import Asked, TellsRest
from agent_server.gateway.dialects.wire import WAITING, Part, event, new_id
from agent_server.gateway.exchange import Completion, Piece, ToldResponse
from rollyard import codec
from rollyard.messages import ToolCall


class ResponseEvents:
    """An `EventStream`. An item ends where another one begins."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._told = TellsRest()
        self._whole: Part = {}
        self._number = -1
        self._items: list[Part] = []
        """Items that have ended, and the one that is open."""
        self._is_open = False

    def begin(self, prompt_tokens: int) -> bytes:
        silent = ToldResponse(
            content="",
            reasoning="",
            calls=(),
            finish_reason="stop",
            token_ids=(),
            tokens=(),
            logprobs=(),
        )
        nothing = Completion(choices=(silent,), prompt_tokens=prompt_tokens)
        whole = response_of(self._asked, nothing, [])
        self._whole = {**whole, "status": "in_progress", "usage": None}
        told = ("response.created", "response.in_progress")
        return b"".join(self._event(kind, response=self._whole) for kind in told)

    def tell(self, choice: int, piece: Piece) -> bytes:
        self._told.tell(choice, piece)
        return b"".join(self._deltas(piece))

    def wait(self) -> bytes:
        return WAITING

    def end(self, answer: Completion) -> bytes:
        (choice,) = answer.choices
        events = list(self._deltas(self._told.rest(0, choice)))
        if not choice.calls and not choice.content:
            events += self._begin(_message(""))  # a response says something, be it nothing
        events += self._close()
        for item in map(_call, choice.calls):
            events += self._called(item)
        whole = response_of(self._asked, answer, self._items)
        whole |= {name: self._whole[name] for name in ("id", "created_at")}
        return b"".join([*events, self._event(f"response.{whole['status']}", response=whole)])

    def fail(self, status: int, message: str, code: str) -> bytes:
        error = {"code": code, "message": message}
        whole = {**self._whole, "status": "failed", "error": error}
        return self._event("response.failed", response=whole)

    def _deltas(self, piece: Piece) -> Iterator[bytes]:
        for text, item in (
            (piece.reasoning, _reasoning("")),
            (piece.content, _message("")),
        ):
            if text:
                yield from self._begin(item)
                yield self._delta(text)

    def _begin(self, item: Part) -> Iterator[bytes]:
        """Begin an item, unless it is the one that is open."""
        if self._is_open and self._items[-1]["type"] == item["type"]:
            return
        yield from self._close()
        self._items.append(item)
        self._is_open = True
        begun = {**item, "content": []}
        if item["type"] == "message":
            begun["status"] = "in_progress"
        yield self._event("response.output_item.added", output_index=self._last, item=begun)
        yield self._event("response.content_part.added", **self._at, part=item["content"][0])

    def _delta(self, text: str) -> bytes:
        part = self._items[-1]["content"][0]
        part["text"] += text
        return self._event(f"response.{part['type']}.delta", **self._at, delta=text, **_more(part))

    def _close(self) -> Iterator[bytes]:
        if not self._is_open:
            return
        self._is_open = False
        item = self._items[-1]
        part = item["content"][0]
        said = {"text": part["text"], **_more(part)}
        yield self._event(f"response.{part['type']}.done", **self._at, **said)
        yield self._event("response.content_part.done", **self._at, part=part)
        yield self._event("response.output_item.done", output_index=self._last, item=item)

    def _called(self, item: Part) -> Iterator[bytes]:
        """A call, all at once."""
        self._items.append(item)
        begun = {**item, "arguments": "", "status": "in_progress"}
        at, said = {"item_id": item["id"], "output_index": self._last}, item["arguments"]
        name = "response.function_call_arguments"
        yield self._event("response.output_item.added", output_index=self._last, item=begun)
        yield self._event(f"{name}.delta", **at, delta=said)
        yield self._event(f"{name}.done", **at, name=item["name"], arguments=said)
        yield self._event("response.output_item.done", output_index=self._last, item=item)

    @property
    def _last(self) -> int:
        return len(self._items) - 1

    @property
    def _at(self) -> Part:
        return {"item_id": self._items[-1]["id"], "output_index": self._last, "content_index": 0}

    def _event(self, kind: str, **told: object) -> bytes:
        self._number += 1
        return event({"type": kind, **told, "sequence_number": self._number}, kind)


def response_of(asked: Asked, answer: Completion, items: list[Part]) -> dict[str, Any]:
    """The answer, with these items."""
    (choice,) = answer.choices
    complete = choice.finish_reason == "stop"
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed" if complete else "incomplete",
        "incomplete_details": None if complete else {"reason": "max_output_tokens"},
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": asked.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto" if asked.inquiry.calls else "none",
        "tools": [],
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": answer.response_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + answer.response_tokens,
        },
    }


def items_of(choice: ToldResponse) -> list[Part]:
    """The items of a whole response."""
    items = [_reasoning(choice.reasoning)] if choice.reasoning else []
    if choice.content or not choice.calls:
        items.append(_message(choice.content))
    return [*items, *map(_call, choice.calls)]


def _reasoning(text: str) -> Part:
    thought = {"type": "reasoning_text", "text": text}
    return {"id": new_id("rs_"), "type": "reasoning", "summary": [], "content": [thought]}


def _message(text: str) -> Part:
    said = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": new_id("msg_"),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [said],
    }


def _more(part: Part) -> Part:
    """What else the events of a text have."""
    return {"logprobs": []} if part["type"] == "output_text" else {}


def _call(call: ToolCall) -> Part:
    return {
        "id": new_id("fc_"),
        "type": "function_call",
        "status": "completed",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": codec.encode_json(call.arguments).decode(),
    }
