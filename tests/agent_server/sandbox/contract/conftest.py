"""Every provider of sandboxes, each with one sandbox that a test may spoil."""

from collections.abc import Iterator

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import OpenSandbox, SandboxFactory, SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings


@pytest.fixture(scope="session", params=["bubblewrap"])
def provider() -> Iterator[SandboxFactory]:
    maker = Bubblewrap(SandboxSettings())
    yield maker
    maker.close()


@pytest.fixture
def sandbox(provider: SandboxFactory) -> Iterator[OpenSandbox]:
    with provider.open(SandboxNeeds()) as opened:
        yield opened
