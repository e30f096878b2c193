"""What an agent server can give to environments, held against what these need."""

from collections.abc import Collection, Iterator, Mapping

import msgspec
import structlog

from agent_server.environments.protocol import EnvironmentKind, Needs
from agent_server.repositories import NO_REPOSITORIES, Repositories
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import LaunchError

log = structlog.get_logger()


class ServerAbilities(msgspec.Struct, frozen=True, kw_only=True):
    agents: Collection[str]
    """Names of its agents."""
    tags: Collection[str] = ()
    sandboxes: SandboxSettings = SandboxSettings()
    repositories: Repositories = NO_REPOSITORIES

    def check(self, environments: Mapping[str, EnvironmentKind]) -> None:
        """Raise `LaunchError` if an environment needs what this server does not have."""
        for name, kind in environments.items():
            if lacking := ", ".join(self.missing(kind.needs)):
                raise LaunchError(
                    f"the environment {name!r} needs what this agent server does not have: "
                    f"{lacking}",
                    fix="put it on this machine, name it in the server's options, or take it out "
                    "of the `needs` of the environment's class; after an update of Rollyard run "
                    "`make environments`",
                )

    def usable(self, environments: Mapping[str, EnvironmentKind]) -> dict[str, EnvironmentKind]:
        """The environments that can run here. The log says of the others what they lack."""
        found = {}
        for name, kind in environments.items():
            if lacking := ", ".join(self.missing(kind.needs)):
                log.info("environment_left_out", environment=name, lacking=lacking)
            else:
                found[name] = kind
        return found

    def missing(self, needs: Needs) -> Iterator[str]:
        """The needs that this server does not meet."""
        if needs.agent not in self.agents:
            yield f"the agent {needs.agent!r}"
        if needs.sandbox is not None:
            yield from self.sandboxes.missing(needs.sandbox)
        if needs.packages and not self.sandboxes.sources.python(needs.packages).exists():
            make = f"sh launch/environment.sh {needs.packages}"
            yield f"the tool environment {needs.packages!r} with what it imports ({make})"
        images = needs.image_fields and self.sandboxes.sources.images
        if needs.repositories and not (self.repositories.exist or images):
            yield "repositories (--repositories DIR)" + (
                " or images (--images DIR)" if needs.image_fields else ""
            )
        yield from (f"the tag {tag!r}" for tag in needs.tags if tag not in self.tags)
