"""The task queue: Prompts become Groups, whose Jobs wait for a Slot."""

import hashlib
from collections.abc import Sequence

import msgspec

from orchestrator.ids import run_of
from orchestrator.kinds import JobKind, kind_of, read_kind, stored_kind
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.epochs import Epochs
from orchestrator.queues.runs import Runs, no_such_run, run_is_closed
from rollyard import codec
from rollyard.errors import NotFound, TooLarge, Unavailable
from rollyard.messages import Prompt, RunSettings

MAX_QUEUED_JOBS = 100_000
"""Limit on the queued Jobs of one Run: a trainer that feeds without being asked has to wait."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """The queued Jobs of all Runs."""

    jobs: int
    unoffered: int
    """Number of those that no registered agent server can run."""
    first_unoffered: JobKind | None
    """The kind of one of them."""


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

        All of them are taken or none: raises `NotFound` when the Run was forgotten, `Conflict` when
        it is closed, `TrainerReplaced` when `epoch` is not its trainer's any more, `TooLarge` for
        more than `max_queued` Jobs, and `Unavailable` when with them more than so many would wait.
        """
        settings = self._runs.settings(run_id)
        fields = [
            part for prompt in prompts for part in (prompt.prompt_id, *_stored(prompt, settings))
        ]
        members = settings.first_members
        counted = members or settings.members
        if counted * len(prompts) > max_queued:
            raise _never_fits(run_id, counted * len(prompts), max_queued)
        fed = self._connection.run_script(
            "submit", run_id, members, counted, max_queued, epoch, *fields
        )
        if fed == b"unknown":
            self._runs.overlook(run_id)
            raise no_such_run(run_id)
        if fed == b"closed":
            raise run_is_closed(run_id)
        if fed == b"taken over":
            raise self._epochs.why_not_driven(run_id)
        if isinstance(fed, int):
            raise _backlog_is_full(run_id, fed)
        return [new == 1 for new in fed]

    def queued(self) -> Queued:
        runs, of_run = self._runs.ids(), self._connection.of_run
        pipe = self._connection.pipeline()
        for run_id in runs:
            pipe.hmget(of_run(run_id, "queued"), "all", "nobody")
        for run_id in runs:
            pipe.zrange(of_run(run_id, "next:nobody"), 0, 0)
        answers = self._connection.read(pipe)
        counts, kinds = (
            answers[: len(runs)],
            [kind for some in answers[len(runs) :] for kind in some],
        )
        return Queued(
            jobs=sum(int(jobs or 0) for jobs, _ in counts),
            unoffered=sum(int(jobs or 0) for _, jobs in counts),
            first_unoffered=read_kind(kinds[0]) if kinds else None,
        )

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
            packed, kind, row = _stored(prompt, settings)
            fed = (prompt.prompt_id, packed, kind, settings.first_members, row)
            made = self._connection.run_script("requeue", run_id, settings.members, job_id, *fed)
            if made == 0:
                raise _not_dead(job_id)
            if made == 1:
                return prompt.prompt_id


def _stored(prompt: Prompt, settings: RunSettings) -> tuple[bytes, str, str]:
    """The Prompt, the kind of its Jobs, and its dataset row, as the scripts take them."""
    return codec.encode(prompt), stored_kind(kind_of(prompt, settings)), _row(prompt, settings)


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
