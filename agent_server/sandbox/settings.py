"""The settings of the sandboxes of one server."""

from pathlib import Path

import msgspec

from agent_server.sandbox.command import SandboxLimits
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.totals import SandboxTotals


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    limits: SandboxLimits = SandboxLimits()
    totals: SandboxTotals = SandboxTotals()
    sources: RootSources = RootSources()
    cgroup: Path | None = None
    """Directory of the control group below which those of sandboxes are made; None for the
    server's own, and for a watcher where it may make none there."""
