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

from rollyard.announcements import Announcements
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
    TrainerServers,
    Unit,
    WeightReport,
)
from rollyard.never_offered import NEVER_OFFERED_SECONDS
from rollyard.progress import on_a_terminal
from rollyard.rows import Row
from rollyard.training_run import TrainingRun


class Settings(TypedDict, total=False):
    """Keyword arguments of `Client.run`: the fields of `RunSettings`, which has their meanings and
    defaults."""

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
    tags: tuple[str, ...]
    look_ahead_jobs: int
    trainer_silent_seconds: float
    failing_groups: int
    max_infra_failures: int


class Client:
    """A connection to one orchestrator, safe to share between threads. Leaving its `with` closes
    it.

    Calls are repeated for up to `patience_seconds` while the orchestrator is away, and then raise
    `OrchestratorUnavailable`, or the kind of `Unavailable` that was its last answer. A token that
    is refused raises `Unauthorized`; one whose role does not allow the call raises `Forbidden`.

    It shows `token`, or the most privileged one in `token_file`. Given neither, it looks for a
    token file as `rollyard.tokens.tokens_for` does, which finds that of a `rollyard up` on this
    machine, even one that is still starting.

    At an https URL it trusts the CAs in `ca_file`, else those in the file that `ROLLYARD_CA_FILE`
    names, else those of such a `rollyard up`, each beside the CAs that this machine trusts anyway.

    While `rollout` waits, a terminal shows the progress in one line, unless `show_progress` is
    False.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        patience_seconds: float = 60.0,
        show_progress: bool | None = None,
    ) -> None:
        self._api = OrchestratorAPI(
            url,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            patience_seconds=patience_seconds,
        )
        self._show_progress = on_a_terminal() if show_progress is None else show_progress
        self._runs: WeakSet[TrainingRun] = WeakSet()
        self._announcements = Announcements(self._api)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the sockets and, as `TrainingRun.close` does, the threads of all Runs, and take back
        the LLM servers that were announced. Closing twice changes nothing."""
        for run in tuple(self._runs):
            run.close()
        self._announcements.close()
        self._api.close()

    def run(
        self,
        dataloader: Iterable[Row | Iterable[Row]],
        *,
        never_offered_seconds: float | None = NEVER_OFFERED_SECONDS,
        **settings: Unpack[Settings],
    ) -> TrainingRun:
        """Create a Run, or take it over from the trainer that drove it so far: Batches that it has
        not acknowledged are delivered again. The dataloader yields rows, or lists of rows.

        `rollyard.messages.RunSettings` says what each setting means. For Jobs of seconds rather
        than minutes, let `look_ahead_jobs` be an eighth of the Slots: agent servers then take
        Jobs ahead.

        `rollout` raises `NeverOffered` once all that is left of the Run has waited for
        `never_offered_seconds` for an environment, or a tag, that no agent server has ever had;
        None waits for ever. What a server once had is waited for in any case.

        Raises `InvalidMessage` for settings that make no sense, and `Conflict` if the Run exists
        with other settings or began with another model than the servers have now.
        """
        run = RunSettings(**settings)
        self._api.create_run(run)
        api = RunAPI(self._api, run.run_id).take_over()
        driven = TrainingRun(
            api,
            run,
            dataloader,
            show_progress=self._show_progress,
            never_offered_seconds=never_offered_seconds,
        )
        self._runs.add(driven)
        return driven

    def status(self) -> FleetStatus:
        """Status of all Runs, agent servers and LLM nodes."""
        return self._api.status()

    def occupancy(self) -> Occupancy:
        """Busy Slots of each agent server over time, in unix seconds."""
        return self._api.occupancy()

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """Load the checkpoint in the directory `path` on every LLM server as `version`. Returns
        once all of them serve it, and reports for how many seconds they paused.

        Running generations pause and continue under the new weights; `weight_spans` of a Trajectory
        says which version sampled which tokens.

        Raises `Conflict` unless `version` is higher than all published before, or the same as the
        last one with the same `path`; `InvalidMessage` if no LLM server can read the checkpoint;
        `LLMUnavailable` or `DeadlineExceeded` if some have not loaded it, which are sent it again.
        """
        return self._api.update_weights(path, version)

    def weights_updated(self, version: int) -> WeightReport:
        """Say that the trainer itself has put new weights on every LLM server, which are `version`
        from now on. Returns once all servers call them so.

        The servers pause for a moment, drop their prefix caches, and go on, also those that the
        trainer had paused. Weights that a server loses when it dies are not known here: it gets no
        requests until the next version. `unchanged` of the report names servers that answer to the
        bit as before.

        Raises `InvalidMessage` if the servers' logprobs show that not all have new weights, and
        else as `update_weights`.
        """
        return self._api.weights_updated(version)

    def announce_llm_servers(self, urls: Iterable[str], *, name: str = "trainer") -> None:
        """Have agent servers with `--llm-announced` ask these LLM servers, which are the trainer's
        own, within two seconds, and until this client is closed or its process has ended. Other
        URLs under the same `name` take their place, and none take them back.

        The trainer puts the weights on them, and calls `weights_updated`. They see no token. A URL
        may end in `/v1`, as clients of OpenAI write it.

        Raises `Conflict` if an LLM node has this `name`.
        """
        servers = tuple(url.rstrip("/").removesuffix("/v1") for url in urls)
        self._announcements.announce(TrainerServers(name=name, servers=servers))

    def weight_version(self) -> int:
        """The highest version ever published, or 0: a trainer's first update must be higher.
        Raises `LLMUnavailable` until an LLM node has registered."""
        return self._api.weight_version()
