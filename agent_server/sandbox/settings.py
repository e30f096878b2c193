"""The settings of the sandboxes of one server."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from agent_server.sandbox.command import SandboxLimits
from agent_server.sandbox.containers import CONTAINERS
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.totals import SandboxTotals
from rollyard.errors import InvalidMessage
from rollyard.messages import check

BUBBLEWRAP = "bubblewrap"
UNSAFE_LOCAL = "unsafe-local"
PROVIDERS = (BUBBLEWRAP, *CONTAINERS, UNSAFE_LOCAL)


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    provider: str = BUBBLEWRAP
    """One of `PROVIDERS`."""
    limits: SandboxLimits = SandboxLimits()
    totals: SandboxTotals = SandboxTotals()
    sources: RootSources = RootSources()
    hosts: tuple[str, ...] = ()
    """Hosts that environments may let their sandboxes reach."""
    cgroup: Path | None = None
    """Directory of the control group below which those of sandboxes are made; None for the
    server's own, and for a watcher where it may make none there."""

    def __post_init__(self) -> None:
        check(
            self.provider in PROVIDERS,
            f"there are no sandboxes of {self.provider!r}",
            fix=f"choose one of {', '.join(PROVIDERS)}",
        )

    def missing(self, needs: SandboxNeeds) -> Iterator[str]:
        """The needs that these sandboxes do not meet."""
        if self.provider == UNSAFE_LOCAL:
            yield from _not_local(needs)
            needs = SandboxNeeds(programs=needs.programs)
        yield from self.sources.missing(needs)
        for host in needs.network:
            if host not in self.hosts:
                yield f"a way to {host!r}, which no --sandbox-host allows"

    def check(self, needs: SandboxNeeds) -> None:
        """Raise `InvalidMessage` for needs that these sandboxes do not meet."""
        if lacking := ", ".join(self.missing(needs)):
            raise InvalidMessage(
                f"this server has no sandbox with {lacking}",
                fix="put it there (docs/sandboxes.md), or name the right directory when starting "
                "the agent server",
            )


def _not_local(needs: SandboxNeeds) -> Iterator[str]:
    """The needs that only a sandbox with a root and a network of its own can meet."""
    lacking = [f"the image {needs.image!r}"] if needs.image else []
    lacking += [f"{directory!r} on the PATH" for directory in needs.path]
    lacking += [f"the tool environment {name!r}" for name in needs.tools]
    lacking += [f"a way to {host!r} and to nothing else" for host in needs.network]
    for each in lacking:
        yield f"{each}, which {UNSAFE_LOCAL} cannot give"
