"""The trainer's side of Rollyard: pass the dataloader once, then ask for Batches.

run = Client("http://127.0.0.1:8005").run(dataloader, run_id="my-run", group_size=8)
batch = run.rollout(requested_batch_size=16)
...                                   # train on it
run.update_weights("/path/to/checkpoint", version=1)
run.ack(batch)
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Required, Self, TypedDict, TypeVar, Unpack

from rollyard.connection import Connection
from rollyard.errors import OrchestratorUnavailable
from rollyard.http import Peer
from rollyard.messages import (
    Criterion,
    Limits,
    Occupancy,
    Prediction,
    Recycling,
    RunSettings,
    RunStatus,
    Sampling,
    Unit,
    WeightReport,
    YardStatus,
)
from rollyard.progress import on_a_terminal
from rollyard.rows import Row
from rollyard.run_calls import RunCalls
from rollyard.tokens import tokens_for
from rollyard.training_run import TrainingRun
from rollyard.weights import Weights

T = TypeVar("T")


class Settings(TypedDict, total=False):
    """What `Client.run` may be told of a Run, by name: the fields of `RunSettings`, which says
    what each means and what it is if left out."""

    run_id: Required[str]
    group_size: int
    criterion: Criterion
    solved_at: float
    unit: Unit
    recycling: Recycling
    max_staleness: int
    prediction: Prediction
    sampling: Sampling
    limits: Limits
    look_ahead_jobs: int
    trainer_silent_seconds: float
    failing_groups: int
    max_infra_failures: int


class Client:
    """A connection to one orchestrator. Calls are repeated while it is away, up to
    `patience_seconds`; then they raise `OrchestratorUnavailable`.

    It shows `token`, or the most privileged one in `token_file`. Given neither, it looks for a
    file as `rollyard.tokens.tokens_for` says: that of a `rollyard up` here is found, also one that
    is starting still.

    While `rollout` waits, a terminal shows a line that says for what, unless `show_progress` is
    False. Leaving its `with` closes the connection; Runs are left as they are.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        patience_seconds: float = 60.0,
        show_progress: bool | None = None,
    ) -> None:
        path = None if token_file is None else Path(token_file)
        find_token = None if token else lambda: tokens_for(url, path).widest
        self._peer = Peer(
            url, name="orchestrator", token=token, unreachable=OrchestratorUnavailable
        )
        self._connection = Connection(self._peer, patience_seconds, find_token)
        self._weights = Weights(self._connection)
        self._show_progress = on_a_terminal() if show_progress is None else show_progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, after the last call."""
        self._peer.close()

    def run(
        self, dataloader: Iterable[Row | Iterable[Row]], **settings: Unpack[Settings]
    ) -> TrainingRun:
        """Create the Run, or take it over from the trainer that drove it, which is told so: Batches
        that one has not acknowledged are delivered again. The dataloader yields rows, or lists of
        rows.

        `rollyard.messages.RunSettings` says what each setting means. For Jobs of seconds rather
        than minutes, let `look_ahead_jobs` be an eighth of the Slots: agent servers then take
        Jobs ahead.

        Raises `InvalidMessage` for settings that make no sense and `Conflict` if the Run exists
        with other settings.
        """
        run = RunSettings(**settings)
        self.call(lambda peer: peer.post("/runs", run, RunStatus))
        return TrainingRun(
            RunCalls.take_over(self._connection, run.run_id),
            self._weights,
            dataloader,
            show_progress=self._show_progress,
        )

    def status(self) -> YardStatus:
        """All Runs, agent servers and LLM nodes."""
        return self.call(lambda peer: peer.get("/status", YardStatus))

    def occupancy(self) -> Occupancy:
        """Busy Slots over time, for plots."""
        return self.call(lambda peer: peer.get("/occupancy", Occupancy))

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """Load the checkpoint at `path` on every LLM server as `version`.

        Running generations pause and go on under the new weights. Every token of a Trajectory
        names the version that sampled it.
        """
        return self._weights.update(path, version)

    def weight_version(self) -> int:
        """The version that the LLM servers serve now; a trainer's first update goes beyond it."""
        return self._weights.version()

    def call(self, work: Callable[[Peer], T]) -> T:
        """`work`, repeated while the orchestrator is away. All of its calls may be repeated."""
        return self._connection.call(work)
