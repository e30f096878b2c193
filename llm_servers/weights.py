"""The weight update: one sequence over all LLM servers of the node.

    pause(keep) > load > reset prefix cache > set version > resume

- Each phase runs on all servers at once; the next begins when it succeeded on every server, so no
  server generates under new weights while another still serves the old ones.
- Versions rise; one version never names two checkpoints. What can be refused is refused before
  anything is paused: a load that fails leaves a server without usable weights.
- After a failure only a server whose weights and version belong together is resumed: one that
  failed before its load holds the old weights under the old version. All others stay paused, with
  their generations frozen, until an update succeeds; a later, good update heals them.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from llm_servers.checkpoint import problem_with_weights
from llm_servers.server import LLMServer
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable, RollyardError
from rollyard.messages import WeightReport, WeightUpdate

log = structlog.get_logger()


class WeightUpdater:
    """Owns the weight version of the servers. One update at a time."""

    def __init__(self, servers: Sequence[LLMServer], *, version: int) -> None:
        self._servers = tuple(servers)
        self._version = version
        self._unfinished: WeightUpdate | None = None
        self._last: tuple[WeightUpdate, WeightReport] | None = None
        self._one_at_a_time = threading.Lock()

    def update(self, wanted: WeightUpdate) -> WeightReport:
        """Bring `wanted` to every server. Raises with the server and the phase that failed.

        Repeating the last update, whose answer may have been lost, answers the same again.
        """
        path = _checkpoint(wanted.path)
        with self._one_at_a_time:
            if self._last is not None and self._last[0] == wanted:
                return self._last[1]
            self._check_rises(wanted)
            began = time.monotonic()
            self._run(path, wanted)
            report = WeightReport(
                version=wanted.version,
                servers=tuple(server.url for server in self._servers),
                paused_seconds=time.monotonic() - began,
            )
            self._last = (wanted, report)
        log.info("weights_updated", version=report.version, paused_seconds=report.paused_seconds)
        return report

    @property
    def version(self) -> int:
        """What the servers serve."""
        return self._version

    def _check_rises(self, wanted: WeightUpdate) -> None:
        if wanted.version <= self._version and wanted != self._unfinished:
            raise Conflict(
                f"weight version {wanted.version} does not rise: the LLM servers are at "
                f"{self._version}",
                fix="number every update higher than all before it",
            )

    def _run(self, path: Path, wanted: WeightUpdate) -> None:
        try:
            self._phase("pause", lambda server: server.pause())
        except LLMUnavailable:
            self._go_on_as_before()
            raise
        self._phase("load", lambda server: server.load_weights(path))
        self._phase("reset the prefix cache", lambda server: server.reset_prefix_cache())
        # From here on some server may answer under this version: only the same update may retry it.
        self._version, self._unfinished = wanted.version, wanted
        self._phase("set the version", lambda server: server.set_version(wanted.version))
        self._phase("resume", lambda server: server.resume())
        self._unfinished = None

    def _phase(self, name: str, act: Callable[[LLMServer], None]) -> None:
        """Run `act` on all servers at once and wait for all. Raises one error for those failed."""

        def attempt(server: LLMServer) -> str:
            try:
                act(server)
            except RollyardError as error:
                return f"{server.url}: {error.message}"
            return ""

        with ThreadPoolExecutor(len(self._servers), thread_name_prefix=name) as threads:
            failures = [failure for failure in threads.map(attempt, self._servers) if failure]
        if failures:
            log.error("weight_update_failed", phase=name, failures=failures)
            raise LLMUnavailable(
                f"the weight update failed in phase '{name}' on {len(failures)} of "
                f"{len(self._servers)} LLM servers: {'; '.join(failures)}",
                fix=_advice(name),
            )

    def _go_on_as_before(self) -> None:
        """Resume the servers after a pause that failed: no weights were touched."""
        try:
            self._phase("resume", lambda server: server.resume())
        except LLMUnavailable as error:
            log.error("still_paused", reason=error.message)


def _advice(phase: str) -> str:
    if phase == "pause":
        return "the weights are unchanged; look at the log of the failed server"
    return "its servers stay paused: send the update again, or restart the failed server"


def _checkpoint(path: str) -> Path:
    checkpoint = Path(path).resolve()
    problem = problem_with_weights(checkpoint)
    if problem is not None:
        raise InvalidMessage(problem.message, fix=f"{problem.fix}, then update")
    return checkpoint
