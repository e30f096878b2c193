"""Explanations of why Jobs find no agent server: none has their environment and their tags."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from orchestrator.kinds import JobKind, can_run
from orchestrator.queues.runs import Run
from orchestrator.queues.servers import Known
from rollyard.messages import AgentServerStatus

MAX_NAMED = 8
"""Environments, or servers, that a sentence names."""


def why_unoffered(run: Run, servers: Sequence[AgentServerStatus]) -> str:
    """The reason why queued Jobs of the Run can run nowhere; empty if each can somewhere."""
    if not servers or not run.backlog.unoffered_kinds:
        return ""
    jobs = run.counters.jobs_unoffered
    first, *others = run.backlog.unoffered_kinds
    more = f", or {' or '.join(map(str, others))}" if others else ""
    return (
        f"no agent server has {first}{more}: {jobs} job{'s wait' if jobs > 1 else ' waits'} "
        f"for one; {_what_to_start(first, servers)}"
    )


def why_never_offered(run: Run, servers: Sequence[AgentServerStatus], known: Known) -> str:
    """The first name that queued Jobs of the Run wait for and that no agent server ever had; empty
    if there is none: what they need may come back."""
    if not servers:
        return ""
    for kind in run.backlog.unoffered_kinds:
        if kind.environment not in known.environments:
            return _never_had("environment", kind.environment, known.environments)
        for tag in kind.tags:
            if tag not in known.tags:
                return _never_had("tag", tag, known.tags)
    return ""


def _never_had(what: str, name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    guess = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"no agent server has ever had the {what} {name!r}{guess}; known are {_named(known)}"


def why_no_more_slots(run: Run) -> str:
    """The reason why the Run gets no more Slots than it has; empty if it may have more."""
    most, held = run.share.max_slots, run.counters.jobs_leased
    if most is None or held < most:
        return ""
    return (
        f"its run holds {held} slots, and may hold {most} at most: an operator said so, with "
        f"`rollyard share {run.settings.run_id}`"
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
    start = f"start one{' with' + tags if tags else ''} that has the package of this environment"
    named = _named({name for server in servers for name in server.environments})
    return f"{start}, or correct data_source: they have {named}"


def _named(names: Iterable[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    return (", ".join(known[:MAX_NAMED]) or "none") + more


def _tags_of(servers: Sequence[AgentServerStatus]) -> str:
    """A clause on the tags of the servers that have the environment."""
    told = [
        f"{server.server_id} has {' and '.join(sorted(server.tags)) or 'no tags'}"
        for server in servers[:MAX_NAMED]
    ]
    return f"of those with the environment {', '.join(told)}"
