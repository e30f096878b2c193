"""The trainer's side of Rollyard: pass the dataloader once, then ask for Batches.

with Client("http://127.0.0.1:8005") as client:
    with client.run(dataloader, run_id="my-run", group_size=8) as run:
        batch = run.rollout(requested_batch_size=16)
        ...                                # train on it
        run.update_weights("/path/to/checkpoint", version=1)
        run.ack(batch)
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Required, Self, TypedDict, Unpack
from weakref import WeakSet

from rollyard.api import DEFAULT_URL, OrchestratorAPI, RunAPI
from rollyard.messages import (
    Criterion,
    FleetStatus,
    Limits,
    Occupancy,
    Prediction,
    Recycling,
    RunSettings,
    Sampling,
    Unit,
    WeightReport,
)
from rollyard.progress import on_a_terminal
from rollyard.rows import Row
from rollyard.training_run import TrainingRun


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
    `patience_seconds`; then they raise `OrchestratorUnavailable`, or what else of `Unavailable` it
    answered last. A token that is refused raises `Unauthorized`, one whose role may not do this
    `Forbidden`. Safe to share between threads.

    It shows `token`, or the most privileged one in `token_file`. Given neither, it looks for a
    file as `rollyard.tokens.tokens_for` says: that of a `rollyard up` here is found, also one that
    is starting still.

    While `rollout` waits, a terminal shows a line that says for what, unless `show_progress` is
    False. Leaving its `with` closes it.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        patience_seconds: float = 60.0,
        show_progress: bool | None = None,
    ) -> None:
        self._api = OrchestratorAPI(
            url, token=token, token_file=token_file, patience_seconds=patience_seconds
        )
        self._show_progress = on_a_terminal() if show_progress is None else show_progress
        self._runs: WeakSet[TrainingRun] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free its sockets, and the threads of its Runs: each as `TrainingRun.close` does. Closing
        again changes nothing."""
        for run in tuple(self._runs):
            run.close()
        self._api.close()

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
        with other settings, or began with another model than the servers have now.
        """
        run = RunSettings(**settings)
        self._api.create_run(run)
        api = RunAPI(self._api, run.run_id).take_over()
        driven = TrainingRun(api, dataloader, show_progress=self._show_progress)
        self._runs.add(driven)
        return driven

    def status(self) -> FleetStatus:
        """All Runs, agent servers and LLM nodes."""
        return self._api.status()

    def occupancy(self) -> Occupancy:
        """Busy Slots over time, for plots: counts at unix seconds."""
        return self._api.occupancy()

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """Load the checkpoint in the directory `path`, which every LLM server can read, as
        `version`; return once all of them serve it, with the seconds that they stood still.

        Running generations pause and go on under the new weights. Every token of a Trajectory
        names the version that sampled it.

        Raises `Conflict` for a version that is not above all published before, unless `path` is
        the same, too; `InvalidMessage` if no LLM server can read the checkpoint; `LLMUnavailable`
        or `DeadlineExceeded` if some did not load it: those get it later, by themselves.
        """
        return self._api.update_weights(path, version)

    def weight_version(self) -> int:
        """The highest version that was ever published, 0 if none was: a trainer's first update goes
        beyond it. Raises `LLMUnavailable` before any LLM node has registered."""
        return self._api.weight_version()
