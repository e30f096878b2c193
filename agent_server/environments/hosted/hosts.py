"""All environments that run in processes of their own, and the hosts that make these.

- Those of other packages share a host, with the Python of this server.
- Each of ours whose packages are in a tool environment has one with the Python from there. Its
  class is imported here, too, for what it needs: its module imports none of these packages.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import EntryPoint

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.environments.protocol import EnvironmentKind, Needs
from agent_server.rewards.protocol import Rewards
from agent_server.sandbox.roots import RootSources


class EnvironmentHosts:
    """Owns the hosts."""

    def __init__(
        self,
        foreign: Sequence[EntryPoint],
        apart: Mapping[EntryPoint, Needs],
        sources: RootSources,
        limits: ProcessLimits,
    ) -> None:
        """Raises `LaunchError` where one of `foreign` cannot be imported."""
        self._foreign = EnvironmentHost(foreign, limits)
        self._needs = apart
        self._apart = {
            point: EnvironmentHost((point,), limits, python=sources.python(needs.packages))
            for point, needs in apart.items()
        }

    @property
    def stuck(self) -> int:
        """Number of processes that were killed and live on, held up by the kernel."""
        return sum(host.stuck for host in (self._foreign, *self._apart.values()))

    def foreign(self, rewards: Rewards) -> dict[str, EnvironmentKind]:
        """The environments of other packages, by name."""
        return self._foreign.environments(rewards)

    def apart(self, rewards: Rewards) -> dict[str, EnvironmentKind]:
        """Those of ours, by name, whether their tool environments are there or not."""
        return {
            point.name: host.kind(point.name, self._needs[point], rewards)
            for point, host in self._apart.items()
        }

    def close(self) -> None:
        with ExitStack() as held:
            for host in (self._foreign, *self._apart.values()):
                held.callback(host.close)
