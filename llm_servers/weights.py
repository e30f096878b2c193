"""The weight update: one sequence over all LLM servers of the node that lag behind.

    pause(keep) > load > reset prefix cache > set version > resume

- Each phase runs on all these servers at once; the next begins when it succeeded on every one, so
  no server generates under new weights while another still serves the old ones.
- Versions rise; one version never names two checkpoints. What can be refused is refused before
  anything is paused: a load that fails leaves a server without usable weights.
- After a failed pause the servers that it paused are resumed: no weights were touched. After any
  other failure they stay paused, with their generations frozen, until an update succeeds. A server
  that was paused before stays paused: its weights may not be those of its label.
- A server that restarted lags behind: it has no version until it has the published weights. One
  that restarts during an update fails it, and is not labelled.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from llm_servers.checkpoint import check_weights
from llm_servers.server import LLMServer
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable, RollyardError
from rollyard.messages import WeightReport, WeightUpdate

log = structlog.get_logger()


class WeightUpdater:
    """Owns the weights that the servers should serve, as far as this node knows. Updates are
    serialised."""

    def __init__(self, servers: Sequence[LLMServer]) -> None:
        self._servers = tuple(servers)
        self.published: WeightUpdate | None = None
        """The last update that a server may have been labelled with; its path is empty if only the
        version is known."""
        self._last: WeightReport | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def version(self) -> int:
        return self.published.version if self.published is not None else 0

    def take_over(self, labels: Sequence[int | None]) -> None:
        """Adopt the versions that the servers had before this process began; where their weights
        came from is unknown."""
        version = max((label for label in labels if label), default=0)
        self.published = WeightUpdate(path="", version=version) if version else None

    def update(self, wanted: WeightUpdate) -> WeightReport:
        """Bring `wanted` to every server. Raises `InvalidMessage` for an unusable checkpoint,
        `Conflict` for a version that does not rise, and `LLMUnavailable`, which names server and
        phase, if it fails.

        Repeating the last update, whose answer may have been lost, gives the same answer again.
        """
        path = _checkpoint(wanted)
        with self._one_at_a_time:
            self._check_rises(wanted)
            lagging = [server for server in self._servers if not _serves(server, wanted.version)]
            if self._last is not None and self._last.version == wanted.version and not lagging:
                return self._last
            self._last = self._bring(path, wanted, lagging)
            return self._last

    def restore(self, wanted: WeightUpdate | None) -> bool:
        """Bring the published weights to the servers that answer and lag behind, and return whether
        there were any. None stands for the model as started. Raises as `update`.

        Nothing is done while an update runs, or if this node knows of a newer one.
        """
        version = wanted.version if wanted is not None else 0
        if not self._one_at_a_time.acquire(blocking=False):
            return False
        try:
            if version < self.version:
                return False
            answering = [server for server in self._servers if server.healthy()]
            lagging = [server for server in answering if not _serves(server, version)]
            if wanted is not None and lagging:
                self._last = self._bring(_checkpoint(wanted), wanted, lagging)
            elif wanted is None:
                _label_as_started(lagging)
            self.published = wanted
            return bool(lagging)
        finally:
            self._one_at_a_time.release()

    def _check_rises(self, wanted: WeightUpdate) -> None:
        if wanted.version <= self.version and wanted != self.published:
            raise Conflict(
                f"weight version {wanted.version} does not rise: the LLM servers are at "
                f"{self.version}",
                fix="number every update higher than all before it",
            )

    def _bring(
        self, path: Path, wanted: WeightUpdate, servers: Sequence[LLMServer]
    ) -> WeightReport:
        running = [server for server in servers if not _is_paused_or_silent(server)]
        began = time.monotonic()
        try:
            self._phase("pause", servers, lambda server: server.pause())
        except LLMUnavailable:
            self._resume_unchanged(running)
            raise
        paused = time.monotonic()
        self._phase("load", servers, lambda server: server.load_weights(path))
        load_seconds = time.monotonic() - paused
        self._phase("reset the prefix cache", servers, lambda server: server.reset_prefix_cache())
        # From here on some server may answer under this version: no other update may use it.
        self.published = wanted
        self._phase("set the version", servers, lambda server: _label(server, wanted.version))
        self._phase("resume", servers, lambda server: server.resume())
        seconds = time.monotonic() - began
        urls = [server.url for server in servers]
        log.info("weights_updated", version=wanted.version, servers=urls, paused_seconds=seconds)
        return WeightReport(
            version=wanted.version,
            # All of them: those not updated now had this version before.
            servers=tuple(server.url for server in self._servers),
            paused_seconds=seconds,
            load_seconds=load_seconds,
        )

    def _phase(
        self, name: str, servers: Sequence[LLMServer], act: Callable[[LLMServer], None]
    ) -> None:
        """Run `act` on all `servers` at once and wait. Raises one `LLMUnavailable` for all that
        failed."""

        def attempt(server: LLMServer) -> str:
            try:
                act(server)
            except RollyardError as error:
                return f"{server.url}: {error.message}"
            return ""

        if not servers:
            return
        with ThreadPoolExecutor(len(servers), thread_name_prefix=name) as threads:
            failures = [failure for failure in threads.map(attempt, servers) if failure]
        if failures:
            log.error("weight_update_failed", phase=name, failures=failures)
            raise LLMUnavailable(
                f"the weight update failed in phase '{name}' on {len(failures)} of "
                f"{len(servers)} LLM servers: {'; '.join(failures)}",
                fix=_advice(name),
            )

    def _resume_unchanged(self, running: Sequence[LLMServer]) -> None:
        """Resume these servers after a failed pause, which has not touched their weights."""
        try:
            self._phase("resume", running, lambda server: server.resume())
        except LLMUnavailable as error:
            log.error("still_paused", reason=error.message)


def _serves(server: LLMServer, version: int) -> bool:
    """Whether the server answers, is not paused, and has this weight version."""
    try:
        return server.version() == version and not server.paused()
    except LLMUnavailable:
        return False


def _is_paused_or_silent(server: LLMServer) -> bool:
    """Whether the server is paused already, or does not answer."""
    try:
        return server.paused()
    except LLMUnavailable:
        return True


def _label(server: LLMServer, version: int) -> None:
    """Label the weights just loaded. Raises `LLMUnavailable` if the server has restarted since."""
    # A restarted server is not paused, and its new weights must not get this label.
    if not server.paused():
        raise LLMUnavailable("it started again after its weights were loaded")
    server.set_version(version)


def _label_as_started(servers: Sequence[LLMServer]) -> None:
    """Label servers without a version with version 0, the model as started. A paused one was left
    in the middle of an update, and only another update may label it."""
    for server in servers:
        if server.version() is None and not server.paused():
            server.set_version(0)


def _advice(phase: str) -> str:
    if phase == "pause":
        return "the weights are unchanged; look at the log of the failed server"
    return "its servers stay paused: send the update again, or restart the failed server"


def _checkpoint(wanted: WeightUpdate) -> Path:
    if not wanted.path:
        raise InvalidMessage(
            f"the checkpoint of weight version {wanted.version} is not known any more",
            fix="publish the weights again, with a higher version",
        )
    checkpoint = Path(wanted.path).resolve()
    check_weights(checkpoint)
    return checkpoint
