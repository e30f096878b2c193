"""The trainers of Runs in Redis: who drives which, and when it was last heard of.

- One trainer drives a Run: the last that took it over. A call that names an earlier epoch moves
  nothing; one that names none is an operator's.
- Parked Jobs keep their Slots for a trainer that lives; see `lend.lua` for when they give way.
"""

from datetime import UTC, datetime

from orchestrator.queues.redis_connection import RedisConnection
from orchestrator.queues.redis_states import no_such_run
from rollyard.errors import NotFound, TrainerReplaced
from rollyard.messages import Lease, Trainer

MAX_PARKED_BESIDE_STARVED_SECONDS = 60.0
"""How long a Job may stand parked while another Run has not one Slot."""


class RedisTrainers(RedisConnection):
    def claim(self, run_id: str, trainer: Trainer) -> int:
        """Take the Run over; the epoch from now on. Asking again gives the same. Raises
        `NotFound`."""
        who = (trainer.trainer_id, trainer.host, trainer.pid)
        epoch = self._run_script("claim", run_id, *who)
        if epoch is None:
            raise no_such_run(run_id)
        return int(epoch)

    def heard(self, run_id: str, epoch: int, *, leaving: bool) -> None:
        """The trainer lives, or goes. Raises `TrainerReplaced` and `NotFound`."""
        if not self._run_script("heard", run_id, epoch, int(leaving)):
            raise self._taken_over(run_id)

    def check_epoch(self, run_id: str, epoch: int | None) -> None:
        """Raises `TrainerReplaced` if another trainer has taken the Run over since."""
        if epoch is None:
            return
        newest = self._do(lambda r: r.hget(self._of_run(run_id, "trainer"), "epoch"))
        if newest is not None and int(newest) != epoch:
            raise self._taken_over(run_id)

    def lend(self) -> tuple[Lease, ...]:
        """Let parked Jobs give way where they must: the Leases that ended."""
        return tuple(
            lease_of(*ended)
            for ended in self._run_script("lend", MAX_PARKED_BESIDE_STARVED_SECONDS)
        )

    def _taken_over(self, run_id: str) -> TrainerReplaced | NotFound:
        names = ("since", "host", "pid")
        since, host, pid = self._do(lambda r: r.hmget(self._of_run(run_id, "trainer"), names))
        if since is None:
            if not self._do(lambda r: r.exists(self._of_run(run_id, "settings"))):
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


def epoch_argument(epoch: int | None) -> int | str:
    """As the scripts read it: empty for an operator."""
    return "" if epoch is None else epoch


def lease_of(job: bytes, slot: bytes, attempt: bytes | int) -> Lease:
    """As the scripts return it."""
    slot_name = slot.decode()
    return Lease(
        job_id=job.decode(),
        attempt=int(attempt),
        server_id=slot_name.rsplit("#", 1)[0],
        slot=slot_name,
    )
