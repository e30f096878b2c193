"""vLLM's `/v1/chat/completions` on the scripted server, for agents that know OpenAI's API alone.

It is that of vLLM with `--enable-auto-tool-choice --tool-call-parser hermes`: the conversation is
rendered as ChatML, in which calls of tools stand as the policy writes them, and the calls of a
response are read out of it. Nothing is streamed.
"""

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from llm_servers.contract import GenerateRequest, SamplingParams
from llm_servers.scripted.engine import ScriptedGeneration
from llm_servers.scripted.refusals import BadRequestError
from llm_servers.scripted.script import END, START, TOOL_CALL, TOOL_CALL_END, Vocabulary
from rollyard.codec import learnt

CHAT_COMPLETIONS = "/v1/chat/completions"
ENGINE_ID = "chatcmpl-{}"
"""Name that vLLM's engine gives to a chat request."""
_CALL = re.compile(re.escape(TOOL_CALL) + r"\s*(.*?)\s*" + re.escape(TOOL_CALL_END), re.DOTALL)


class ChatFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"
    """JSON, as OpenAI has it."""


class ChatToolCall(msgspec.Struct, frozen=True):
    function: ChatFunction
    id: str = ""
    type: str = "function"


class ContentPart(msgspec.Struct, frozen=True):
    text: str = ""
    type: str = "text"


class ChatRequestMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[ContentPart, ...] | None = None
    tool_calls: tuple[ChatToolCall, ...] | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    messages: Sequence[ChatRequestMessage]
    model: str = ""
    max_tokens: int | None = None
    """The older name of `max_completion_tokens`."""
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    logprobs: bool | None = None
    return_token_ids: bool | None = None
    stream: bool | None = None
    request_id: str = ""


class RenderedChat(GenerateRequest, frozen=True, kw_only=True):
    """A chat request on the token route."""

    return_token_ids: bool = False


class Chat:
    """Readings and answers of the route, in the words of one model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def read(self, body: bytes) -> RenderedChat:
        """The request in a body. Raises `BadRequestError`."""
        try:
            wanted = msgspec.json.decode(body, type=learnt(ChatRequest))
            prompt = "".join(_rendered(message) for message in wanted.messages)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadRequestError(str(error)) from error
        if wanted.stream:
            raise BadRequestError("the scripted server does not stream")
        return RenderedChat(
            token_ids=self._vocabulary.encode(f"{prompt}{START}assistant\n"),
            sampling_params=SamplingParams(
                max_tokens=wanted.max_completion_tokens or wanted.max_tokens,
                temperature=1.0 if wanted.temperature is None else wanted.temperature,
                top_p=1.0 if wanted.top_p is None else wanted.top_p,
                seed=wanted.seed,
                logprobs=0 if wanted.logprobs else None,
            ),
            request_id=wanted.request_id,
            model=wanted.model,
            return_token_ids=bool(wanted.return_token_ids),
        )

    def write(
        self, request: GenerateRequest, generation: ScriptedGeneration, _: Sequence[float] | None
    ) -> dict[str, Any]:
        assert isinstance(request, RenderedChat)
        text = self._vocabulary.decode(generation.token_ids).removesuffix(END)
        message = _read(text, generation.request_id)
        ended = generation.finish_reason
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if ended == "stop" and "tool_calls" in message else ended,
            "logprobs": self._logprobs(generation)
            if request.sampling_params.logprobs == 0
            else None,
            "token_ids": generation.token_ids if request.return_token_ids else None,
        }
        prompt, response = len(request.token_ids), len(generation.token_ids)
        return {
            "id": generation.request_id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": "policy",
            "choices": [choice],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": response,
                "total_tokens": prompt + response,
            },
            "prompt_token_ids": list(request.token_ids) if request.return_token_ids else None,
        }

    def _logprobs(self, generation: ScriptedGeneration) -> dict[str, Any]:
        drawn = zip(generation.token_ids, generation.logprobs, strict=False)
        content: list[dict[str, Any]] = [
            {
                "token": self._vocabulary.decode([token]),
                "logprob": logprob,
                "bytes": None,
                "top_logprobs": [],
            }
            for token, logprob in drawn
        ]
        return {"content": content}


def _rendered(message: ChatRequestMessage) -> str:
    """The message in ChatML."""
    content = message.content or ""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    calls = [_written(call.function) for call in message.tool_calls or ()]
    return f"{START}{message.role}\n" + "\n".join(filter(None, [text, *calls])) + f"{END}\n"


def _written(function: ChatFunction) -> str:
    """The call as the policy writes it. Raises `ValueError`."""
    call = {"name": function.name, "arguments": json.loads(function.arguments)}
    return f"{TOOL_CALL}\n{json.dumps(call, ensure_ascii=False)}\n{TOOL_CALL_END}"


def _read(text: str, request_id: str) -> dict[str, Any]:
    """The assistant's message: a text in which one call cannot be read has none."""
    try:
        calls = [json.loads(written) for written in _CALL.findall(text)]
        told = [
            {
                "id": f"{request_id}-{number}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for number, call in enumerate(calls)
        ]
    except (ValueError, TypeError, KeyError):
        told = []
    if not told:
        return {"role": "assistant", "content": text}
    return {
        "role": "assistant",
        "content": text.partition(TOOL_CALL)[0] or None,
        "tool_calls": told,
    }
