"""A program with OpenAI's package as it is published: it leads the same conversation four times."""

import json
from typing import Any

import openai

LS: Any = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
TOOL: Any = {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}


def chat(client: openai.OpenAI, *, streams: bool) -> Any:
    messages: list[Any] = [{"role": "user", "content": "list"}]

    def ask() -> Any:
        if not streams:
            answer = client.chat.completions.create(
                model="policy", messages=messages, tools=[LS], logprobs=True
            )
            return answer.choices[0]
        with client.chat.completions.stream(
            model="policy", messages=messages, tools=[LS], logprobs=True
        ) as stream:
            return stream.get_final_completion().choices[0]

    called = ask().message
    (call,) = called.tool_calls
    messages.append(called.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "a b"})
    said = ask()
    return [called.content, call.function.name, said.message.content, len(said.logprobs.content)]


def responses(client: openai.OpenAI, *, streams: bool) -> Any:
    items: list[Any] = [{"role": "user", "content": "list"}]

    def ask() -> Any:
        if not streams:
            return client.responses.create(model="policy", input=items, tools=[TOOL])
        with client.responses.stream(model="policy", input=items, tools=[TOOL]) as stream:
            return stream.get_final_response()

    called = ask()
    call = called.output[-1]
    items.extend(item.model_dump(exclude_none=True) for item in called.output)
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "a b"})
    said = ask()
    return [called.output_text, call.name, said.output_text, said.usage.output_tokens]


with openai.OpenAI() as client:
    led = [lead(client, streams=streams) for lead in (chat, responses) for streams in (True, False)]
print(json.dumps(led))
