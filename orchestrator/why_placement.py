"""Explanations of why Jobs find no agent server: none has their environment and their tags."""

from collections.abc import Sequence

from orchestrator.kinds import JobKind, can_run
from orchestrator.queues.runs import Run
from rollyard.messages import AgentServerStatus

MAX_NAMED = 8
"""Environments, or servers, that a sentence names."""


def why_unoffered(run: Run, servers: Sequence[AgentServerStatus]) -> str:
    """The reason why queued Jobs of the Run can run nowhere; empty if each can somewhere."""
    if not servers or not run.backlog.unoffered_kinds:
        return ""
    jobs = run.backlog.unoffered
    first, *others = run.backlog.unoffered_kinds
    more = f", or {' or '.join(map(str, others))}" if others else ""
    return (
        f"no agent server has {first}{more}: {jobs} job{'s wait' if jobs > 1 else ' waits'} "
        f"for one; {_what_to_start(first, servers)}"
    )


def why_kind_is_unoffered(kind: JobKind, servers: Sequence[AgentServerStatus]) -> str:
    """The reason why no Job of this kind can run; empty if one can."""
    if not servers or any(can_run(server, kind) for server in servers):
        return ""
    return f"no agent server has {kind}; {_what_to_start(kind, servers)}"


def _what_to_start(kind: JobKind, servers: Sequence[AgentServerStatus]) -> str:
    tags = "".join(f" --tag {tag}" for tag in kind.tags)
    having = [server for server in servers if kind.environment in server.environments]
    if having:
        return f"start one with{tags}; {_tags_of(having)}"
    known = sorted({name for server in servers for name in server.environments})
    start = f"start one{' with' + tags if tags else ''} that has the package of this environment"
    more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    named = ", ".join(known[:MAX_NAMED]) or "no environment"
    return f"{start}, or correct data_source: they have {named}{more}"


def _tags_of(servers: Sequence[AgentServerStatus]) -> str:
    """A clause on the tags of the servers that have the environment."""
    told = [
        f"{server.server_id} has {' and '.join(sorted(server.tags)) or 'no tags'}"
        for server in servers[:MAX_NAMED]
    ]
    return f"of those with the environment {', '.join(told)}"
