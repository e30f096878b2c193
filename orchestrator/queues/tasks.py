"""The task queue: Prompts become Groups, whose Jobs wait for a Slot."""

import hashlib
from collections.abc import Sequence

import msgspec

from orchestrator.ids import run_of
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.epochs import Epochs
from orchestrator.queues.runs import Runs, run_is_closed
from rollyard import codec
from rollyard.errors import NotFound, TooLarge, Unavailable
from rollyard.messages import Prompt, RunSettings

MAX_QUEUED_JOBS = 100_000
"""Limit on the queued Jobs of one Run: a trainer that feeds without being asked has to wait."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Tasks:
    def __init__(self, connection: RedisConnection, runs: Runs, epochs: Epochs) -> None:
        self._connection = connection
        self._runs = runs
        self._epochs = epochs

    def submit(
        self,
        run_id: str,
        prompts: Sequence[Prompt],
        *,
        epoch: int | None = None,
        max_queued: int = MAX_QUEUED_JOBS,
    ) -> list[bool]:
        """Put the Jobs of new Groups' first members on the task queue; False for a Prompt that was
        fed before.

        All of them are taken or none: raises `Conflict` when the Run is closed, `TrainerReplaced`
        when `epoch` is not its trainer's any more, `TooLarge` for more than `max_queued` Jobs, and
        `Unavailable` when with them more than so many would wait.
        """
        settings = self._runs.settings(run_id)
        triples = [
            part
            for prompt in prompts
            for part in (prompt.prompt_id, codec.encode(prompt), _row(prompt, settings))
        ]
        members = settings.first_members
        counted = members or settings.members
        if counted * len(prompts) > max_queued:
            raise _never_fits(run_id, counted * len(prompts), max_queued)
        fed = self._connection.run_script(
            "submit", run_id, members, counted, max_queued, epoch, *triples
        )
        if fed == b"closed":
            raise run_is_closed(run_id)
        if fed == b"taken over":
            raise self._epochs.why_not_driven(run_id)
        if isinstance(fed, int):
            raise _backlog_is_full(run_id, fed)
        return [new == 1 for new in fed]

    def prompts(self, run_id: str) -> list[str]:
        """Ids of the Run's Prompts that were fed, and are neither dropped nor acknowledged. Raises
        `NotFound`."""
        self._runs.settings(run_id)
        prompts = self._connection.of_run(run_id, "prompts")
        return sorted(name.decode() for name in self._connection.do(lambda r: r.hkeys(prompts)))

    def requeue(self, job_id: str) -> str:
        """Feed a dead Job's Prompt as a new Group with a fresh budget; returns the Group's id.

        The dead Jobs of the old Group are then counted as dropped. Raises `NotFound`.
        """
        run_id = run_of(job_id)
        settings = self._runs.read(run_id).settings
        dead_prompts = self._connection.of_run(run_id, "dead_prompts")
        stored = self._connection.do(lambda r: r.hget(dead_prompts, job_id))
        if stored is None:
            raise _not_dead(job_id)
        prompt = codec.decode(stored, Prompt)
        while True:  # until a name that the trainer has not given to a row of its own
            prompt = msgspec.structs.replace(prompt, prompt_id=_next_name(prompt.prompt_id))
            fed = (codec.encode(prompt), settings.first_members, _row(prompt, settings))
            made = self._connection.run_script(
                "requeue", run_id, settings.members, job_id, prompt.prompt_id, *fed
            )
            if made == 0:
                raise _not_dead(job_id)
            if made == 1:
                return prompt.prompt_id


def _row(prompt: Prompt, settings: RunSettings) -> str:
    """The key of the dataset row that the Prompt was made of; empty where no history is kept.

    Rows are told apart by their `id`, if they have one, and by all they say if not.
    """
    if not settings.prediction.skip_by_history:
        return ""
    name = prompt.instance.get("id")
    row = [prompt.data_source, name] if isinstance(name, str | int) else prompt.instance
    return hashlib.blake2b(_encoder.encode(row), digest_size=8).hexdigest()


def _next_name(group_id: str) -> str:
    """The id of the Group that takes the place of a dead one: `p`, `p:2`, `p:3`."""
    name, _, number = group_id.rpartition(":")
    if name and number.isdigit():
        return f"{name}:{int(number) + 1}"
    return f"{group_id}:2"


def _never_fits(run_id: str, jobs: int, most: int) -> TooLarge:
    return TooLarge(
        f"{jobs} jobs fed to run {run_id!r} at once are more than the {most} that may be queued",
        fix="feed fewer prompts at once",
    )


def _backlog_is_full(run_id: str, queued: int) -> Unavailable:
    return Unavailable(
        f"run {run_id!r} has {queued} queued jobs already",
        fix="feed the prompt again when some of them have run; `rollyard why` says what "
        "they wait for",
    )


def _not_dead(job_id: str) -> NotFound:
    return NotFound(f"job {job_id!r} is not among the dead", fix="list them with `rollyard dead`")
