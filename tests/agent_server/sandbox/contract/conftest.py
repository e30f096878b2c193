"""Every provider of sandboxes, each with one sandbox that a test may spoil."""

from collections.abc import Iterator

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.containers import CONTAINERS, why_not_here
from agent_server.sandbox.protocol import OpenSandbox, SandboxFactory, SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings

FOUND = [name for name in CONTAINERS if not why_not_here(name)]
"""Programs of this machine that hold sandboxes beside bubblewrap."""


@pytest.fixture(scope="session", params=["bubblewrap", *FOUND])
def provider(request: pytest.FixtureRequest) -> Iterator[SandboxFactory]:
    maker = Bubblewrap(SandboxSettings(provider=request.param))
    yield maker
    maker.close()


@pytest.fixture
def sandbox(provider: SandboxFactory) -> Iterator[OpenSandbox]:
    with provider.open(SandboxNeeds()) as opened:
        yield opened
