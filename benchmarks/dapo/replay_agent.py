"""An agent server that sleeps as the World of a seed has it.

A Job takes its draw's time, scaled down, and has its draw's reward. Parked, it stands still.
"""

import asyncio
import time

import msgspec

from benchmarks.http_wire import Connection
from benchmarks.noop_agent import (
    HEARTBEAT_SECONDS,
    TRAJECTORY,
    NoopAgent,
    live,
    options_of,
    server_of,
)
from rollyard import codec
from rollyard.messages import (
    Accepted,
    AgentServer,
    Assignment,
    Heartbeat,
    HeartbeatReply,
    Job,
    Lease,
    Outcome,
    Result,
    Timings,
)
from simulator.workload import Draw, Try, Workload, World

Attempt = tuple[str, int]


class Sleep(msgspec.Struct):
    """An attempt on a Slot."""

    seconds_left: float
    since: float = 0.0
    timer: asyncio.TimerHandle | None = None
    """None while it stands still."""


class ReplayAgent(NoopAgent):
    def __init__(self, server: AgentServer, workload: Workload, scale: float) -> None:
        super().__init__(server, job_seconds=None)
        self._workload = workload
        self._scale = scale
        self._jobs: dict[Attempt, Job] = {}
        self._draws: dict[Attempt, Draw] = {}
        self._sleeping: dict[Attempt, Sleep] = {}
        self._parked: set[Attempt] = set()
        self._tries: dict[str, int] = {}
        self._pushes = 0

    async def handle(self, path: str, body: bytes) -> tuple[int, bytes]:
        if path not in ("/park", "/resume", "/cancel"):
            return await super().handle(path, body)
        attempts = {(each.job_id, each.attempt) for each in codec.decode(body, list[Lease])}
        self._pushes += 1
        if path == "/park":
            self._park(attempts)
        elif path == "/resume":
            self._resume(attempts)
        else:
            self._stop(attempts)
        return 200, codec.encode(Accepted())

    def _take(self, assignment: Assignment) -> None:
        self._jobs[assignment.lease.job_id, assignment.lease.attempt] = assignment.job
        super()._take(assignment)

    def _work(self, lease: Lease) -> None:
        key = (lease.job_id, lease.attempt)
        job = self._jobs.pop(key)
        tries = self._tries.get(job.job_id, 0)
        self._tries[job.job_id] = tries + 1
        instance = job.prompt.instance
        wanted = Try(instance["row"], instance["occurrence"], job.member, tries)
        draw = self._draws[key] = self._workload.draw(wanted, 0)
        self._sleeping[key] = Sleep(draw.seconds * self._scale)
        if key not in self._parked:
            self._go_on(key)

    def _go_on(self, key: Attempt) -> None:
        sleep = self._sleeping[key]
        sleep.since = time.perf_counter()
        loop = asyncio.get_running_loop()
        sleep.timer = loop.call_later(sleep.seconds_left, self._awake, key)

    def _awake(self, key: Attempt) -> None:
        del self._sleeping[key]
        self._end(self._running[key])

    def _park(self, attempts: set[Attempt]) -> None:
        known = attempts & self._running.keys()
        self._parked |= known
        for key in known & self._sleeping.keys():
            sleep = self._sleeping[key]
            if sleep.timer is not None:
                sleep.timer.cancel()
                sleep.timer = None
                sleep.seconds_left -= time.perf_counter() - sleep.since

    def _resume(self, attempts: set[Attempt]) -> None:
        self._parked -= attempts
        for key in attempts & self._sleeping.keys():
            if self._sleeping[key].timer is None:
                self._go_on(key)

    def _stop(self, attempts: set[Attempt]) -> None:
        self._parked -= attempts
        for key in attempts & self._running.keys():
            lease = self._running.pop(key)
            if (sleep := self._sleeping.pop(key, None)) is not None:
                if sleep.timer is not None:
                    sleep.timer.cancel()
                self._end(lease)

    def _result(self, lease: Lease) -> Result:
        draw = self._draws.pop((lease.job_id, lease.attempt))
        return Result(
            lease=lease,
            outcome=Outcome.COMPLETED,
            reward=draw.reward,
            trajectory=TRAJECTORY,
            timings=Timings(run_seconds=draw.seconds * self._scale),
        )

    async def _beat(self, orchestrator: Connection) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            pushes, leases = self._pushes, tuple(self._running.values())
            heartbeat = Heartbeat(server_id=self._server.server_id, leases=leases)
            status, body = await orchestrator.post("/heartbeats", codec.encode(heartbeat))
            if status != 200:
                raise SystemExit(f"heartbeat refused with {status}: {body!r}")
            if pushes == self._pushes:  # else the answer is older than what was pushed
                self._level(leases, codec.decode(body, HeartbeatReply))

    def _level(self, leases: tuple[Lease, ...], reply: HeartbeatReply) -> None:
        """What a push that got lost would have said."""
        held = {(lease.job_id, lease.attempt) for lease in leases}
        parked = {(lease.job_id, lease.attempt) for lease in reply.parked}
        stopped = {(lease.job_id, lease.attempt) for lease in reply.stop}
        self._stop(stopped)
        self._park(parked)
        self._resume(held - parked - stopped)


async def main() -> None:
    parser = options_of("benchmarks.dapo.replay_agent", __doc__ or "")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--scale", type=float, required=True, help="real seconds of a drawn one")
    options = parser.parse_args()
    agent = ReplayAgent(server_of(options), World(options.seed), options.scale)
    await live(agent, options)


if __name__ == "__main__":
    asyncio.run(main())
