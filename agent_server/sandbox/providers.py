"""The provider that an operator has chosen."""

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.provider import Provider
from agent_server.sandbox.settings import UNSAFE_LOCAL, SandboxSettings
from agent_server.sandbox.unsafe_local import UnsafeLocal


def open_provider(settings: SandboxSettings) -> Provider:
    """Raises `SandboxUnavailable`."""
    return UnsafeLocal(settings) if settings.provider == UNSAFE_LOCAL else Bubblewrap(settings)
