"""One environment with all that an agent server would give it, and none of the server.

Its code runs where it would run there: ours in a thread, all other in processes of its own. Model-
written code runs in real sandboxes.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Self

from agent_server.abilities import ServerAbilities
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.hosts import EnvironmentHosts
from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import EnvironmentKind, Episode, Opening
from agent_server.registry import (
    environments_apart,
    foreign_environments,
    graders,
    load_agents,
    our_environments,
)
from agent_server.repositories import Repositories
from agent_server.rewards.local import LocalRewards, LocalRewardSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import InvalidMessage
from rollyard.messages import Prompt


class Workbench:
    """Owns the sandboxes, the graders and the processes of one environment's episodes.

    `source` is `module:Class` of an environment that is not installed; its module is looked for in
    the current directory first. `repositories` and `images` are the directories that an agent
    server would be given. Raises `InvalidMessage` for an unknown name, and `LaunchError`.
    """

    def __init__(
        self,
        name: str,
        source: str = "",
        *,
        repositories: Path | None = None,
        images: Path | None = None,
    ) -> None:
        self.name = name
        sandboxes = SandboxSettings(sources=RootSources(images=images))
        with ExitStack() as unless_made:
            self.rewards = LocalRewards(graders(), LocalRewardSettings())
            unless_made.callback(self.rewards.close)
            foreign = _foreign(name, source)
            self._hosts = EnvironmentHosts(
                foreign, environments_apart(), sandboxes.sources, ProcessLimits()
            )
            unless_made.callback(self._hosts.close)
            given = Repositories(repositories)
            ours = our_environments(self.rewards, given) | self._hosts.apart(self.rewards)
            self.kind = self._find(ours={} if source else ours)
            ServerAbilities(
                agents=load_agents().keys(),
                tags=self.kind.needs.tags,
                sandboxes=sandboxes,
                repositories=given,
            ).check({name: self.kind})
            self.sandboxes = Bubblewrap(sandboxes)
            unless_made.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as held:
            for part in (self.rewards, self._hosts, self.sandboxes):
                held.callback(part.close)

    @contextmanager
    def episode(self, prompt: Prompt, seconds: float) -> Iterator[tuple[Episode, Opening]]:
        """An episode of the row that has begun. It is killed when it takes longer than that."""
        with ExitStack() as held:
            sandbox = None
            if (needs := self.kind.needs.sandbox_for(prompt.instance)) is not None:
                sandbox = self.sandboxes.open(needs)
                held.callback(sandbox.close)
            episode = self.kind.make()
            held.callback(episode.close)

            def end() -> None:
                if sandbox is not None:
                    sandbox.close()
                episode.kill()

            timer = threading.Timer(seconds, end)
            held.callback(timer.cancel)
            timer.start()
            yield episode, episode.start(prompt, sandbox or NoSandbox())

    def _find(self, ours: dict[str, EnvironmentKind]) -> EnvironmentKind:
        kind = (ours | self._hosts.foreign(self.rewards)).get(self.name)
        if kind is None:
            installed = (*ours, *(point.name for point in foreign_environments()))
            nearest = get_close_matches(self.name, installed, n=1)
            raise InvalidMessage(
                f"there is no environment {self.name!r}"
                + (f" (did you mean {nearest[0]!r}?)" if nearest else ""),
                fix="name one of `rollyard env list`, or your class with --from module:Class",
            )
        return kind


def _foreign(name: str, source: str) -> tuple[EntryPoint, ...]:
    """The environment of another package, if it is one."""
    if source:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        return (EntryPoint(name, source, ""),)
    return tuple(point for point in foreign_environments() if point.name == name)
