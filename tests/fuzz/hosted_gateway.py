"""A gateway in a process of its own: what it holds can be measured from outside.

It opens and closes sessions as it is told on stdin, line by line, and answers on stdout.
"""

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Opening
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.session import GatewaySession
from llm_servers.generation import Generation, TurnRequest
from rollyard import codec
from rollyard.messages import Limits
from serving import logs
from tests.agent_server.fakes import EchoEnvironment, generation, make_job

CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
PHRASES = (
    "yes",
    "",
    " \n",
    "<think>hm</think>",
    "<think>hm",
    "</think>",
    CALL % ("ls", "{}"),
    CALL % ("ls", '{"path": "\\ud800"}'),
    CALL % ("cat", '{"n": 1e999, "deep": ' + "[" * 40 + "]" * 40 + "}"),
    CALL % ("cat", '{"n": ' + "9" * 30 + "}"),
    CALL % ("", "null"),
    "<tool_call>",
    "</tool_call>",
    "\x00\u202e\U0001f4a9",
    "data: [DONE]\n\n",
)
"""A response is some of them."""
MAX_TURNS = 1_000_000


class SaysAnything:
    """A policy whose responses depend on nothing but their prompts."""

    context_tokens = 4096

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self.said: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
        """Prompts, each with its response."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        prompt = tuple(request.token_ids)
        dice = random.Random(crc32(msgspec.msgpack.encode(prompt)))
        text = "".join(dice.choices(PHRASES, k=dice.randrange(4)))
        ids = [*self._template.encode(text), self._template.end_token_id]
        if dice.random() < 0.1:  # tokens that no text has
            ids = [dice.randrange(256) for _ in range(9)] + ids
        cut = len(ids) > request.max_tokens
        said = generation(ids[: request.max_tokens], "length" if cut else "stop", version=1)
        self.said[prompt, said.token_ids] += 1
        if request.hear is not None:
            for token in said.token_ids:
                request.hear((token,))
        return said


class Held(msgspec.Struct, frozen=True):
    session: GatewaySession
    policy: SaysAnything


class HostedGateway:
    """Owns the gateway, and its sessions by their keys."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._gateway = Gateway()
        self._held: dict[str, Held] = {}

    def told(self, said: dict[str, Any]) -> dict[str, Any]:
        if key := said.get("close"):
            return self._close(self._held.pop(key))
        policy = SaysAnything(self._template)
        session = self._gateway.open(self._task(policy), StopSignal())
        self._held[session.key] = Held(session, policy)
        return {"url": session.url, "key": session.key}

    def _close(self, held: Held) -> dict[str, Any]:
        """End the session, and tell what it has recorded."""
        held.session.close()
        if not held.policy.said:
            return {"responses": 0, "tokens": 0, "exact": True}
        trajectory = held.session.trajectory(truncated=False)
        recorded = Counter(
            (tuple(each.token_ids[: turn.start]), tuple(each.token_ids[turn.start : turn.end]))
            for each in trajectory.sequences
            for turn in each.turns
        )
        return {
            "responses": recorded.total(),
            "tokens": sum(sum(each.loss_mask) for each in trajectory.sequences),
            "exact": recorded == held.policy.said,
        }

    def _task(self, policy: SaysAnything) -> Task:
        return Task(
            name="fuzzed",
            job=make_job(limits=Limits(max_turns=MAX_TURNS, max_tokens=4000)),
            opening=Opening(messages=()),
            prompt=(),
            environment=InThread(EchoEnvironment),
            policy=policy,
            template=self._template,
        )


def main() -> None:
    logs.configure("gateway")
    hosted = HostedGateway(ChatTemplate.load(Path(sys.argv[1])))
    for line in sys.stdin:
        answer = hosted.told(msgspec.json.decode(line))
        print(codec.encode_json(answer).decode(), flush=True)


if __name__ == "__main__":
    main()
