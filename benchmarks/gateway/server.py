"""The gateway of an agent server, in a process of its own: `python -m benchmarks.gateway.server`.

The production gateway, chat template and LLM client hold so many sessions open until stdin ends.
One line of JSON says how they are reached.
"""

import argparse
import sys

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.agents.resumable import Resumable
from agent_server.control.deadline import Alarms, Deadline
from agent_server.control.parking import Parking
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Opening
from agent_server.gateway.gateway import Gateway
from agent_server.llm import LLMClient, LLMSettings
from benchmarks.agents.runner import MODEL, Talk, assignment
from rollyard.messages import Limits
from serving import logs
from serving.garbage import collect_seldom
from serving.log_format import LogFormat

_SECONDS = 600.0


class Reached(msgspec.Struct, frozen=True):
    """The way to the sessions."""

    url: str
    keys: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gateway.server", description=__doc__)
    parser.add_argument("--llm", required=True, metavar="URL")
    parser.add_argument("--sessions", type=int, required=True)
    options = parser.parse_args()
    logs.configure("bench", LogFormat.TEXT)
    llm, alarms = LLMClient(LLMSettings(servers=(options.llm,))), Alarms()
    gateway, template = Gateway(), ChatTemplate.load(MODEL)
    sessions = [
        gateway.open(_task(number, llm, template, alarms), StopSignal())
        for number in range(options.sessions)
    ]
    collect_seldom()  # as every service does once it has started
    reached = Reached(sessions[0].url, tuple(session.key for session in sessions))
    print(msgspec.json.encode(reached).decode(), flush=True)
    sys.stdin.read()


def _task(number: int, llm: LLMClient, template: ChatTemplate, alarms: Alarms) -> Task:
    job = msgspec.structs.replace(
        assignment(number, 1, "talk").job,
        limits=Limits(max_turns=10_000, max_tokens=16_384, job_seconds=_SECONDS),
    )
    deadline = Deadline(alarms, job.job_id, (_SECONDS, lambda: None))
    deadline.start()
    return Task(
        name=job.job_id,
        job=job,
        opening=Opening(messages=()),
        prompt=(),
        environment=InThread(Talk),
        policy=Resumable(llm, Parking(_SECONDS), deadline),
        template=template,
    )


if __name__ == "__main__":
    main()
