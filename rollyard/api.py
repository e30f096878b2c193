"""Every route of the orchestrator that trainers and operators call, one typed method a route.

- The paths of these routes are written here and where they are served, and nowhere else.
- A call is repeated while the orchestrator is away, or has not left its token yet: repeating a
  request changes nothing on any route.
- An error is raised without the frames of earlier attempts.
- Safe to share between threads.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import quote, urlencode

from rollyard.backoff import Backoff
from rollyard.errors import InvalidMessage, RollyardError, Unauthorized, Unavailable
from rollyard.http import orchestrator_at
from rollyard.messages import (
    Accepted,
    Batch,
    BatchRequest,
    Checkup,
    Claim,
    DeadJobs,
    Explanation,
    FleetStatus,
    JobList,
    JobState,
    JobViews,
    LogprobArray,
    Occupancy,
    PackedBatch,
    Prompt,
    Requeued,
    RunSettings,
    RunStatus,
    ScoreRequest,
    Scores,
    ServerList,
    Share,
    SignOfLife,
    TokenArray,
    Trainer,
    TrainerServers,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from rollyard.tokens import tokens_for
from rollyard.unpacking import unpacked

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_PORT = 8005
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
LOOK_SECONDS = 1.0
"""Time for which the orchestrator holds a call until there is something to do."""
ANNOUNCE_SECONDS = 5.0
UPDATE_SECONDS = 660.0
"""Time for an update: a little more than the orchestrator itself waits for the LLM servers."""


class OrchestratorAPI:
    """The routes of one orchestrator. Calls are repeated for `patience_seconds` while it is away,
    and then raise `OrchestratorUnavailable`, or the kind of `Unavailable` that it answered last.

    It shows `token`, or the most privileged one in `token_file`. Given neither, it shows the token
    that `rollyard.tokens.tokens_for` finds, and looks for another one while that is refused. It
    trusts the CAs in `ca_file`, or else in the file that `rollyard.trust` finds, beside the usual
    ones.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        patience_seconds: float = 60.0,
    ) -> None:
        path = None if token_file is None else Path(token_file)
        self._find_token = None if token else lambda: tokens_for(url, path).widest
        self._found = self._find_token() if self._find_token else ""
        self._patience_seconds = patience_seconds
        self._closed = threading.Event()
        cas = None if ca_file is None else Path(ca_file)
        self.peer = orchestrator_at(url, token or self._found, cas)

    def close(self) -> None:
        """Free the sockets, and stop repeating calls."""
        self._closed.set()
        self.peer.close()

    def call(self, ask: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """The answer to `ask`, a method of `peer`, which is called again while the peer is away."""
        delays = Backoff(max_seconds=2.0, total_seconds=self._patience_seconds).delays()
        while True:
            shown = self._found
            try:
                return ask(*given, **named)
            except RollyardError as error:
                delay = next(delays, None) if self._may_pass(error, shown) else None
                if delay is None or self._closed.wait(delay):
                    raise self._explained(error).with_traceback(None) from error.__cause__
                log.info("tried again after %.1f s: %s", delay, error)

    def _may_pass(self, error: RollyardError, shown: str) -> bool:
        """Whether the same call may succeed before long."""
        if not isinstance(error, Unauthorized) or self._find_token is None:
            return isinstance(error, Unavailable) and not error.lasts
        # `rollyard up` leaves its tokens for clients only when all of it has started.
        self._found = self._find_token()
        self.peer.show_token(self._found)
        return self._found != shown or not self._found

    def _explained(self, error: RollyardError) -> RollyardError:
        if not isinstance(error, Unauthorized) or self._find_token is None or self._found:
            return error
        return Unauthorized(
            f"{error.message}: none was found",
            fix="`rollyard up` leaves one for this user's programs once all of it has started; "
            "elsewhere give the client a token_file, or set ROLLYARD_TOKEN_FILE",
        )

    def status(self) -> FleetStatus:
        return self.call(self.peer.get, "/status", FleetStatus)

    def occupancy(self) -> Occupancy:
        return self.call(self.peer.get, "/occupancy", Occupancy)

    def servers(self) -> ServerList:
        return self.call(self.peer.get, "/servers", ServerList)

    def checkup(self) -> Checkup:
        return self.call(self.peer.get, "/checkup", Checkup)

    def why(self, name: str) -> Explanation:
        return self.call(self.peer.get, f"/why/{quote(name)}", Explanation)

    def jobs(
        self,
        run: str | None = None,
        state: JobState | None = None,
        *,
        limit: int = 100,
        closed: bool = False,
    ) -> JobList:
        asked = _query(run=run, state=state, limit=limit, closed=closed)
        return self.call(self.peer.get, f"/jobs{asked}", JobList)

    def trajectories(self, name: str, *, limit: int = 16) -> JobViews:
        path = f"/trajectories/{quote(name)}{_query(limit=limit)}"
        return self.call(self.peer.get, path, JobViews)

    def dead(self, run: str | None = None, *, closed: bool = False) -> DeadJobs:
        return self.call(self.peer.get, f"/dead{_query(run=run, closed=closed)}", DeadJobs)

    def cancel(self, job_id: str) -> Accepted:
        return self.call(self.peer.post, f"/jobs/{quote(job_id)}/cancel", None, Accepted)

    def requeue(self, job_id: str) -> Requeued:
        return self.call(self.peer.post, f"/jobs/{quote(job_id)}/requeue", None, Requeued)

    def drain(self, server_id: str) -> Accepted:
        path = f"/servers/{quote(server_id, safe='')}/drain"
        return self.call(self.peer.post, path, None, Accepted)

    def dismiss(self, node_id: str) -> Accepted:
        path = f"/llm-nodes/{quote(node_id, safe='')}/dismiss"
        return self.call(self.peer.post, path, None, Accepted)

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        update = WeightUpdate(path=check_path(path), version=version)
        return self.call(
            self.peer.post, "/weights", update, WeightReport, timeout_seconds=UPDATE_SECONDS
        )

    def weights_updated(self, version: int) -> WeightReport:
        update = WeightUpdate(path="", version=version)
        return self.call(
            self.peer.post, "/weights", update, WeightReport, timeout_seconds=UPDATE_SECONDS
        )

    def announce(self, servers: TrainerServers, *, patiently: bool = True) -> Accepted:
        post, path = self.peer.post, "/llm-servers"
        if patiently:
            return self.call(post, path, servers, Accepted)
        return post(path, servers, Accepted, timeout_seconds=ANNOUNCE_SECONDS)

    def weight_version(self) -> int:
        return self.call(self.peer.get, "/weights", WeightVersion).version

    def score(self, token_ids: TokenArray) -> dict[str, LogprobArray]:
        request = ScoreRequest(token_ids=token_ids)
        return self.call(self.peer.post, "/score", request, Scores).logprobs

    def create_run(self, settings: RunSettings) -> RunStatus:
        return self.call(self.peer.post, "/runs", settings, RunStatus)


class RunAPI:
    """The routes of one Run. With the `epoch` of a trainer they raise `TrainerReplaced` once
    another trainer drives the Run; an operator has none."""

    def __init__(
        self, orchestrator: OrchestratorAPI, run_id: str, epoch: int | None = None
    ) -> None:
        self.orchestrator = orchestrator
        self.run_id = run_id
        self._call = orchestrator.call
        self._get, self._post = orchestrator.peer.get, orchestrator.peer.post
        self._path = f"/runs/{quote(run_id, safe='')}"
        self._epoch = epoch
        self._caller = _query(epoch=epoch)

    def take_over(self) -> "RunAPI":
        """The same routes for a new trainer, which drives the Run from now on."""
        trainer = Trainer(
            trainer_id=secrets.token_hex(8), host=socket.gethostname(), pid=os.getpid()
        )
        claim = self._call(self._post, f"{self._path}/trainer", trainer, Claim)
        return RunAPI(self.orchestrator, self.run_id, claim.epoch)

    def heard(self, *, leaving: bool = False) -> None:
        """Send a sign of life of the trainer, which may say that it is `leaving`."""
        sign = SignOfLife(epoch=self._epoch or 0, leaving=leaving)
        self._call(self._post, f"{self._path}/trainer/heard", sign, Accepted)

    def status(self) -> RunStatus:
        return self._call(self._get, f"{self._path}{self._caller}", RunStatus)

    def news(self, batch_id: str, *, exhausted: bool) -> RunStatus:
        """The status once the Batch is complete or needs Prompts, or after `LOOK_SECONDS`. If the
        dataloader is `exhausted`, the wait ends when nothing of the Run is left to do."""
        asked = _query(
            wait_seconds=LOOK_SECONDS, batch=batch_id, exhausted=exhausted, epoch=self._epoch
        )
        return self._call(self._get, f"{self._path}{asked}", RunStatus)

    def request(self, batch_id: str, requested_batch_size: int) -> RunStatus:
        request = BatchRequest(batch_id=batch_id, requested_batch_size=requested_batch_size)
        return self._call(self._post, f"{self._path}/batches{self._caller}", request, RunStatus)

    def fetch(self, batch_id: str) -> Batch:
        """The Batch, once it is delivered. Raises `InvalidMessage` if it has a Result that no agent
        server should send."""
        path = f"{self._path}/batches/{batch_id}{self._caller}"
        return unpacked(self._call(self._get, path, PackedBatch))

    def acknowledge(self, batch_id: str) -> None:
        self._call(self._post, f"{self._path}/batches/{batch_id}/ack{self._caller}", None, Accepted)

    def feed(self, prompts: Sequence[Prompt]) -> None:
        self._call(self._post, f"{self._path}/prompts{self._caller}", prompts, Accepted)

    def prompts(self) -> set[str]:
        """Ids of the Prompts that the Run still has: waiting, being sampled, or in a Batch."""
        return set(self._call(self._get, f"{self._path}/prompts{self._caller}", list[str]))

    def retry(self) -> RunStatus:
        """Let a Run continue whose Groups died one after the other."""
        return self._call(self._post, f"{self._path}/retry{self._caller}", None, RunStatus)

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        return self._publish(WeightUpdate(path=check_path(path), version=version))

    def weights_updated(self, version: int) -> WeightReport:
        return self._publish(WeightUpdate(path="", version=version))

    def give_share(self, share: Share) -> Accepted:
        """Let the Run have this share of the Slots from now on."""
        return self._call(self._post, f"{self._path}/share", share, Accepted)

    def finish(self) -> RunStatus:
        """Drop all unfinished work for good."""
        return self._call(self._post, f"{self._path}/close{self._caller}", None, RunStatus)

    def forget(self) -> Accepted:
        """Remove a closed Run and everything known about it."""
        return self._call(self._post, f"{self._path}/forget", None, Accepted)

    def _publish(self, update: WeightUpdate) -> WeightReport:
        route = f"{self._path}/weights{self._caller}"
        return self._call(self._post, route, update, WeightReport, timeout_seconds=UPDATE_SECONDS)


def check_path(path: Path | str) -> str:
    """The path of a checkpoint. Raises `InvalidMessage` if it is empty."""
    if not str(path):
        raise InvalidMessage(
            "the path of the checkpoint is empty",
            fix="name its directory, or call weights_updated if the LLM servers have the weights",
        )
    return str(path)


def _query(**asked: str | float | None) -> str:
    """The query of a URL, from its "?" on, without the parameters that are None."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in asked.items()
        if value is not None
    }
    return f"?{urlencode(given)}" if given else ""
