"""Every provider of sandboxes, each with one sandbox that a test may spoil.

What only those promise that isolate their sandboxes is in `test_isolation.py`.
"""

from collections.abc import Iterator

import pytest

from agent_server.sandbox.protocol import OpenSandbox, SandboxFactory, SandboxNeeds
from agent_server.sandbox.providers import open_provider
from agent_server.sandbox.settings import UNSAFE_LOCAL, SandboxSettings
from tests.agent_server.sandbox.contract.isolating import ISOLATING


@pytest.fixture(scope="session", params=[*ISOLATING, UNSAFE_LOCAL])
def provider(request: pytest.FixtureRequest) -> Iterator[SandboxFactory]:
    opened = open_provider(SandboxSettings(provider=request.param))
    yield opened
    opened.close()


@pytest.fixture
def sandbox(provider: SandboxFactory) -> Iterator[OpenSandbox]:
    with provider.open(SandboxNeeds()) as opened:
        yield opened
