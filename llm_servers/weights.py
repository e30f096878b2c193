"""The weight update: one sequence over all LLM servers of the node that lag behind.

    (try an adapter >) pause(keep) > load > reset prefix cache > set version > resume

- Each phase runs on all these servers at once; the next begins when it succeeded on every one, so
  no server generates under new weights while another still serves the old ones.
- Behind a proxy, which gives no requests to them, servers that fail are left behind: paused, or
  with their old weights. They get the published ones with one of the next heartbeats. Nobody is
  paused for one that does not answer, and only once for one that is late.
- Versions rise; one version never names two checkpoints. What can be refused is refused before
  anything is paused: a load that fails leaves a server without usable weights.
- After a failed pause the servers that it paused are resumed: no weights were touched. After any
  other failure of all they stay paused, with their generations frozen, until an update succeeds. A
  server that was paused before stays paused: its weights may not be those of its label.
- A server that restarted lags behind: it has no version until it has the published weights. One
  that restarts during an update fails it, and is not labelled.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from pathlib import Path

import msgspec
import structlog

from llm_servers.adapter_files import check_adapter, is_adapter
from llm_servers.checkpoint import check_weights
from llm_servers.lateness import Lateness
from llm_servers.loading import load, prepare
from llm_servers.looks import LOOK_SECONDS, ServerLook, look_at
from llm_servers.phases import TRY_ADAPTER, WeightPhases
from llm_servers.refits import PROBE, Refits
from llm_servers.server import LLMServer
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable
from rollyard.messages import LogprobArray, WeightReport, WeightUpdate

log = structlog.get_logger()


class WeightUpdater:
    """Owns the weights that the servers should serve, as far as this node knows. Updates are
    serialised."""

    def __init__(
        self,
        servers: Sequence[LLMServer],
        *,
        leaves_behind: bool = False,
        model: Path | None = None,
    ) -> None:
        """`leaves_behind` is True if nobody asks servers that lack the newest weights; `model` is
        the one that they were started with, against which adapters are checked."""
        self._servers = tuple(servers)
        self._model = model
        self._leaves_behind = leaves_behind
        self.behind: dict[str, str] = {}
        """Servers that failed the last update that they were part of, by URL, with the reason."""
        self.published: WeightUpdate | None = None
        """The last update that a server may have been labelled with; its path is empty if only the
        version is known."""
        self._last: WeightReport | None = None
        self._refits = Refits()
        self._lateness = Lateness()
        self._hurry: Future[None] = Future()
        """Done once an update waits for whatever is under way."""
        self._one_at_a_time = threading.Lock()

    @property
    def version(self) -> int:
        return self.published.version if self.published is not None else 0

    def take_over(self, labels: Sequence[int | None]) -> None:
        """Adopt the versions that the servers had before this process began; where their weights
        came from is unknown."""
        version = max((label for label in labels if label), default=0)
        self.published = WeightUpdate(path="", version=version) if version else None
        self._refits.remember(self._answers(self._servers))

    def update(self, wanted: WeightUpdate) -> WeightReport:
        """Bring `wanted` to every server, or, if it has no path, only label the weights that the
        trainer has put on them itself. Raises `InvalidMessage` for an unusable checkpoint,
        `Conflict` for a version that does not rise, and `LLMUnavailable`, which names server and
        phase, if it fails on all, or on any where none may be left behind.

        Repeating the last update, whose answer may have been lost, gives the same answer again.
        """
        path = self._checked(wanted) if wanted.path else None
        with contextlib.suppress(InvalidStateError):
            self._hurry.set_result(None)
        with self._one_at_a_time:
            self._hurry = Future()
            self._check_rises(wanted)
            lagging = self._lagging(wanted.version)
            if self._last is not None and self._last.version == wanted.version and not lagging:
                return self._last
            heard = self._heard_of([each.server for each in lagging]) if path is None else {}
            unchanged = self._refits.unchanged(heard)
            report = self._bring(path, wanted, lagging)
            self._refits.remember(heard)
            self._last = msgspec.structs.replace(report, unchanged=unchanged)
            return self._last

    def restore(self, wanted: WeightUpdate | None) -> bool:
        """Bring the published weights to the servers that answer and lag behind, and return whether
        any has them now. None stands for the model as started. Raises as `update`.

        Nothing is done while an update runs, or if this node knows of a newer one.
        """
        version = wanted.version if wanted is not None else 0
        if not self._one_at_a_time.acquire(blocking=False):
            return False
        try:
            if version < self.version:
                return False
            due = self._lateness.due([each for each in self._servers if each.healthy()])
            lagging = [each for each in self._lagging(version) if each.server in due]
            if wanted is not None and lagging:
                self._last = self._bring(self._checked(wanted), wanted, lagging, self._hurry)
            elif wanted is None:
                _label_as_started([each.server for each in lagging])
            self.published = wanted
            return any(each.server.url not in self.behind for each in lagging)
        finally:
            self._one_at_a_time.release()

    def _check_rises(self, wanted: WeightUpdate) -> None:
        if wanted.version <= self.version and wanted != self.published:
            raise Conflict(
                f"weight version {wanted.version} does not rise: the LLM servers are at "
                f"{self.version}",
                fix="number every update higher than all before it",
            )

    def _heard_of(self, servers: Sequence[LLMServer]) -> dict[str, LogprobArray]:
        """What these servers answer. Raises `InvalidMessage` if it shows that not all have the
        weights that a trainer put on them."""
        heard = self._answers(servers)
        if reason := self._refits.why_not(heard):
            raise InvalidMessage(
                f"not all LLM servers have the new weights: {reason}",
                fix="put them on all of these, and say so again",
            )
        return heard

    def _answers(self, servers: Sequence[LLMServer]) -> dict[str, LogprobArray]:
        """The logprobs of `PROBE`, of those servers that give any now."""

        def ask(server: LLMServer) -> LogprobArray | None:
            try:
                return None if server.paused(LOOK_SECONDS) else server.score(PROBE)
            except (LLMUnavailable, InvalidMessage):
                return None

        if not servers:
            return {}
        with ThreadPoolExecutor(len(servers)) as threads:
            answers = tuple(threads.map(ask, servers))
        return {
            server.url: answer
            for server, answer in zip(servers, answers, strict=True)
            if answer is not None
        }

    def _checked(self, wanted: WeightUpdate) -> Path:
        if not wanted.path:
            raise InvalidMessage(
                f"the checkpoint of weight version {wanted.version} is not known any more",
                fix="publish the weights again, with a higher version",
            )
        path = Path(wanted.path).resolve()
        if is_adapter(path):
            check_adapter(path, self._model)
        else:
            check_weights(path)
        return path

    def _lagging(self, version: int) -> list[ServerLook]:
        """The servers that are paused, have another version, or do not answer."""
        with ThreadPoolExecutor(len(self._servers)) as threads:
            looks = threads.map(look_at, self._servers)
            return [look for look in looks if look.paused or look.version != version]

    def _bring(
        self,
        path: Path | None,
        wanted: WeightUpdate,
        lagging: Sequence[ServerLook],
        hurry: "Future[None] | None" = None,
    ) -> WeightReport:
        """Servers that are late are left out unless there is `hurry`, of a restore."""
        servers = [each.server for each in lagging]
        others = len(servers) < len(self._servers)
        phases = WeightPhases(
            servers, leaves_behind=self._leaves_behind, others=others, hurry=hurry
        )
        out = {each.server.url: each.silent for each in lagging if each.silent}
        if hurry is None:
            out |= {each.url: self.behind[each.url] for each in self._lateness.among(servers)}
        phases.leave(out)
        if path is not None and is_adapter(path):
            _prepare(path, phases)
        try:
            running = [each.server for each in lagging if each.paused is False]
            return self._through(phases, path, wanted, running)
        finally:
            updated = {server.url for server in servers} - phases.behind.keys()
            kept = {url: why for url, why in self.behind.items() if url not in updated}
            self.behind = kept | phases.behind
            self._lateness.remember(phases.late, updated)

    def _through(
        self,
        phases: WeightPhases,
        path: Path | None,
        wanted: WeightUpdate,
        running: Sequence[LLMServer],
    ) -> WeightReport:
        """`running` are those that were not paused before."""
        began = time.monotonic()
        try:
            phases.run("pause", lambda server: server.pause())
        except LLMUnavailable:
            self._resume_unchanged(running)
            raise
        paused = time.monotonic()
        phases.run("load", lambda server: load(server, path))
        load_seconds = time.monotonic() - paused
        phases.run("reset the prefix cache", lambda server: server.reset_prefix_cache())
        # From here on some server may answer under this version: no other update may use it.
        self.published = wanted
        phases.run("set the version", lambda server: _label(server, wanted.version))
        phases.run("resume", lambda server: server.resume())
        seconds = time.monotonic() - began
        urls = [server.url for server in phases.left]
        log.info("weights_updated", version=wanted.version, servers=urls, paused_seconds=seconds)
        return WeightReport(
            version=wanted.version,
            # All but those that failed: the ones not updated now had this version before.
            servers=tuple(each.url for each in self._servers if each.url not in phases.behind),
            paused_seconds=seconds,
            load_seconds=load_seconds,
            behind=phases.behind,
        )

    def _resume_unchanged(self, running: Sequence[LLMServer]) -> None:
        """Resume these servers after a failed pause, which has not touched their weights."""
        try:
            WeightPhases(running, leaves_behind=False, others=False).run(
                "resume", lambda server: server.resume()
            )
        except LLMUnavailable as error:
            log.error("still_paused", reason=error.message)


def _prepare(adapter: Path, phases: WeightPhases) -> None:
    """Have the servers try the adapter. Raises `InvalidMessage` if one refuses it, and
    `LLMUnavailable`."""
    refusals: list[InvalidMessage] = []

    def attempt(server: LLMServer) -> None:
        try:
            prepare(server, adapter)
        except InvalidMessage as error:
            refusals.append(error)
            raise

    try:
        phases.run(TRY_ADAPTER, attempt)
    except LLMUnavailable as error:
        raise (refusals[0] if refusals else error) from error
    if refusals:
        raise refusals[0]


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
