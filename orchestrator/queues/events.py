"""The result queue: the events of each Run, and what its sampler concludes from them."""

import msgspec

from orchestrator.events import AnyEvent, RunClosed, groups_of
from orchestrator.queues.conclusions import Conclusion, Moved, moved, written
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.epochs import Epochs
from orchestrator.queues.question import Question
from orchestrator.queues.runs import Run, Runs
from orchestrator.queues.stored_groups import groups_of_run, overtaken
from rollyard import codec

MAX_EVENTS_A_TURN = 256
MAX_STOPPED_AT_ONCE = 64
"""Jobs of a closed Run that one call stops: Redis serves nobody else meanwhile."""


class PendingEvents(msgspec.Struct, frozen=True):
    """The events that a collector concludes together."""

    run: Run
    events: list[AnyEvent]
    """The oldest events that are not concluded, in order."""


class Events:
    def __init__(self, connection: RedisConnection, runs: Runs, epochs: Epochs) -> None:
        self._connection = connection
        self._runs = runs
        self._epochs = epochs

    def tell(self, run_id: str, event: AnyEvent, *, epoch: int | None = None) -> None:
        """Append what the trainer asks for to the Run's events. Raises `TrainerReplaced`
        when `epoch` is not that of its trainer any more."""
        self._put("tell", run_id, event, epoch)

    def close(self, run_id: str, *, epoch: int | None = None) -> None:
        """Put the end of the Run in place of all events that are not concluded; idempotent. Raises
        `TrainerReplaced` when `epoch` is not that of its trainer any more."""
        self._put("close", run_id, RunClosed(), epoch)

    def wait(self, seconds: float) -> str | None:
        """A Run that may have events, or None after `seconds`."""
        popped = self._connection.wait(self._connection.key("events"), seconds)
        return None if popped is None else popped.decode()

    def pending(self, run_id: str) -> PendingEvents:
        """A Run, its oldest events not yet concluded, and the Groups that they name.

        What the sampler looks at beyond them raises `Overtaken` once somebody else has concluded.
        """
        # Of one moment: what another collector concludes afterwards makes this conclusion refused.
        run, events = self._connection.ask_together(self._runs.run(run_id), self.oldest(run_id))
        state = run.state
        state.open = groups_of_run(self._connection, run_id, "open", run.concluded)
        state.open.look_up({group for event in events for group in groups_of(event)})
        state.complete = groups_of_run(self._connection, run_id, "complete", run.concluded)
        return PendingEvents(run=run, events=events)

    def oldest(self, run_id: str) -> Question[list[AnyEvent]]:
        """The oldest events not yet concluded; they stay first until they are."""
        events = self._connection.of_run(run_id, "events")
        return Question(lambda pipe: pipe.lrange(events, 0, MAX_EVENTS_A_TURN - 1), _events)

    def conclude(self, run_id: str, conclusion: Conclusion) -> Moved:
        """Remove the events, store the state, carry out the decisions: all or nothing.

        Batches that the state does not hold as delivered are forgotten. A Run with events left, or
        with such as the decisions brought about, wakes a collector again. Raises `Overtaken` when
        somebody else has concluded since the state was read.
        """
        state = msgspec.structs.replace(conclusion.state, open={}, complete={})
        told = self._connection.run_script(
            "conclude",
            run_id,
            conclusion.after,
            conclusion.events,
            codec.encode(state),
            codec.encode(written(conclusion, self._runs.settings(run_id))),
        )
        if told is None:
            raise overtaken(run_id)
        return moved(told)

    def sweep(self, run_id: str, most: int = MAX_STOPPED_AT_ONCE) -> Moved:
        """Stop some of a closed Run's Jobs; when none is left, forget what it was sampled from.

        While some are left, the Run wakes a collector again.
        """
        return moved(self._connection.run_script("sweep", run_id, most))

    def wait_for_conclusion(self, run_id: str, seconds: float) -> None:
        """Return when something of the Run may have been concluded, at the latest after
        `seconds`."""
        self._connection.wait(self._connection.of_run(run_id, "settled"), seconds)

    def set_aside(self, run_id: str, why: str) -> None:
        """Note for people that the Run's events cannot be concluded."""
        self._connection.do(lambda r: r.hset(self._connection.key("set_aside"), run_id, why))

    def take_up_again(self, run_id: str) -> None:
        self._connection.do(lambda r: r.hdel(self._connection.key("set_aside"), run_id))

    def _put(self, script: str, run_id: str, event: AnyEvent, epoch: int | None) -> None:
        told = self._connection.run_script(script, run_id, codec.encode(event), epoch)
        if not told:
            raise self._epochs.why_not_driven(run_id)


def _events(answers: list[list[bytes]]) -> list[AnyEvent]:
    (stored,) = answers
    # mypy cannot see that a union is a type here; msgspec takes it as one.
    return [codec.decode(event, AnyEvent) for event in stored]  # type: ignore[arg-type]
