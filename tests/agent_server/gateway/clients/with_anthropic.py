"""A program with Anthropic's package as it is published: it leads the same conversation twice."""

import json
from typing import Any

import anthropic

LS: Any = {"name": "ls", "input_schema": {"type": "object"}}


def lead(client: anthropic.Anthropic, *, streams: bool) -> Any:
    messages: list[Any] = [{"role": "user", "content": "list"}]

    def ask() -> Any:
        asked: Any = {"model": "policy", "messages": messages, "tools": [LS], "max_tokens": 60}
        if not streams:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message()

    called = ask()
    messages.append({"role": "assistant", "content": called.content})
    result = {"type": "tool_result", "tool_use_id": called.content[-1].id, "content": "a b"}
    messages.append({"role": "user", "content": [result]})
    counted = client.messages.count_tokens(model="policy", messages=messages, tools=[LS])
    said = ask()
    assert counted.input_tokens == said.usage.input_tokens
    text, call = called.content
    return [text.text, call.name, said.content[0].text, said.usage.output_tokens]


with anthropic.Anthropic() as client:
    led = [lead(client, streams=streams) for streams in (True, False)]
print(json.dumps(led))
