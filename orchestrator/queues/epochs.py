"""The trainers of Runs: which one drives each, and when it was last heard of.

- One trainer drives a Run: the last that took it over. A call that names an earlier epoch moves
  nothing; one that names none is an operator's.
"""

from datetime import UTC, datetime

from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.runs import no_such_run
from rollyard.errors import NotFound, TrainerReplaced
from rollyard.messages import Trainer


class Epochs:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def claim(self, run_id: str, trainer: Trainer) -> int:
        """Take the Run over and return the trainer's epoch; repeating it gives the same. Raises
        `NotFound`."""
        who = (trainer.trainer_id, trainer.host, trainer.pid)
        epoch = self._connection.run_script("claim", run_id, *who)
        if epoch is None:
            raise no_such_run(run_id)
        return int(epoch)

    def heard(self, run_id: str, epoch: int, *, leaving: bool) -> None:
        """Note a sign of life of the trainer, or its farewell. Raises `TrainerReplaced` and
        `NotFound`."""
        if not self._connection.run_script("heard", run_id, epoch, int(leaving)):
            raise self.why_not_driven(run_id)

    def check(self, run_id: str, epoch: int | None) -> None:
        """Raise `TrainerReplaced` if another trainer has taken the Run over since."""
        if epoch is None:
            return
        trainer = self._connection.of_run(run_id, "trainer")
        newest = self._connection.do(lambda r: r.hget(trainer, "epoch"))
        if newest is not None and int(newest) != epoch:
            raise self.why_not_driven(run_id)

    def why_not_driven(self, run_id: str) -> TrainerReplaced | NotFound:
        """The error for a trainer whose epoch is not the Run's any more."""
        trainer = self._connection.of_run(run_id, "trainer")
        since, host, pid = self._connection.do(lambda r: r.hmget(trainer, ("since", "host", "pid")))
        if since is None:
            settings = self._connection.of_run(run_id, "settings")
            if not self._connection.do(lambda r: r.exists(settings)):
                return no_such_run(run_id)
            return TrainerReplaced(
                f"no trainer drives run {run_id!r}", fix="take it over with Client.run(...)"
            )
        at = datetime.fromtimestamp(float(since), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return TrainerReplaced(
            f"run {run_id!r} was taken over at {at} by the trainer on host {host.decode()!r} with "
            f"pid {int(pid)}",
            fix="one trainer drives a run: the last that called Client.run(...) for it; stop this "
            "one, or give it a run_id of its own",
        )
