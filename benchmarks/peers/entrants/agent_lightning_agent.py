"""The episode as an agent of Agent Lightning: a program with an OpenAI client, which posts its
reward. The gateway's URLs and the question come in its environment."""

import json
import os
from typing import Any

import httpx

from benchmarks.peers.entrants import sums

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": sums.PARAMETERS,
    },
}
ANSWER_SECONDS = 300.0
RETRIES = 10
"""Retries of a connection, as of the OpenAI client of another entrant."""


class LightningAgent:
    def run(self) -> None:
        question = int(os.environ["QUESTION"])
        url, events = os.environ["AGL_OPENAI_BASE_URL"], os.environ["AGL_EVENT_URL"]
        messages: list[dict[str, Any]] = [{"role": "user", "content": sums.text(question)}]
        transport = httpx.HTTPTransport(retries=RETRIES)
        with httpx.Client(timeout=ANSWER_SECONDS, transport=transport) as client:
            for _ in range(sums.TURNS):
                body = {"messages": messages, "tools": [TOOL], "max_tokens": 256}
                answer = client.post(f"{url}/chat/completions", json=body)
                said = answer.raise_for_status().json()["choices"][0]["message"]
                messages.append(said)
                for call in said.get("tool_calls") or ():
                    result = sums.add(**json.loads(call["function"]["arguments"]))
                    reply = {"role": "tool", "tool_call_id": call["id"], "content": str(result)}
                    messages.append(reply)
            last_word = str(messages[-1].get("content") or "")
            reward = {"value": sums.reward(question, last_word), "source": "agent"}
            event = {"event_type": "reward", "data": reward}
            client.post(events, json=event).raise_for_status()
