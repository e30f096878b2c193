"""Kinds of Jobs: what an agent server must have to run them.

The scripts of the queues know a kind as a JSON array: its environment, then its tags, sorted.
"""

import msgspec

from rollyard.codec import learnt
from rollyard.messages import AgentServer, AgentServerStatus, Prompt, RunSettings


class JobKind(msgspec.Struct, frozen=True):
    environment: str
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A noun phrase, such as: the environment 'swe' with the tags gpu and large."""
        name = f"the environment {self.environment!r}"
        if not self.tags:
            return name
        *first, last = self.tags
        tags = f"the tags {', '.join(first)} and {last}" if first else f"the tag {last}"
        return f"{name} with {tags}"


def kind_of(prompt: Prompt, settings: RunSettings) -> JobKind:
    tags = settings.tags if prompt.tags is None else prompt.tags
    return JobKind(prompt.data_source, tuple(sorted(set(tags))))


def stored_kind(kind: JobKind) -> str:
    return msgspec.json.encode([kind.environment, *kind.tags]).decode()


def read_kind(stored: bytes) -> JobKind:
    environment, *tags = msgspec.json.decode(stored, type=learnt(list[str]))
    return JobKind(environment, tuple(tags))


def stored_abilities(server: AgentServer) -> str:
    """All that decides which kinds the server can run: equal for servers that can run the same."""
    abilities = [sorted(set(server.environments)), sorted(set(server.tags))]
    return msgspec.json.encode(abilities).decode()


def can_run(server: AgentServerStatus, kind: JobKind) -> bool:
    return kind.environment in server.environments and set(kind.tags) <= set(server.tags)
