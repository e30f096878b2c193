"""An agent server whose Jobs do nothing, or only take time: `python -m benchmarks.noop_agent`.

It speaks the agent servers' protocol (registers, heartbeats, takes Jobs, reports Results and takes
the next Job from the answer) and spends as little as possible of the machine on it. Beyond it,
`POST /full` answers once every Slot is busy, `POST /release` ends the Jobs that are held, and
`POST /measured` tells how long Slots were idle.
"""

import argparse
import asyncio
import random
import signal
import time
from array import array
from collections import deque

import msgspec

from agent_server.jobs.slots import jobs_ahead
from benchmarks.http_wire import WireConnection, serve
from rollyard import codec
from rollyard.messages import (
    Accepted,
    AgentServer,
    Assignment,
    Heartbeat,
    HeartbeatReply,
    Lease,
    Outcome,
    Reported,
    Result,
    Taken,
    Trajectory,
)

HOST = "127.0.0.1"
ENVIRONMENT = "noop"
HEARTBEAT_SECONDS = 2.0
REPORTERS = 4
MAX_TOGETHER = 64
"""Requests on their way at once, and Results in one of them: as with a real agent server."""

TRAJECTORY = Trajectory(
    token_ids=array("i", range(16)),
    loss_mask=array("b", [0] * 8 + [1] * 8),
    logprobs=array("f", [0.0] * 8 + [-0.5] * 8),
    weight_spans=(),
    turns=(),
    messages=(),
)


class IdleTimes(msgspec.Struct):
    """How long Slots were idle since the last reading, in seconds."""

    gaps: list[float]
    """From the end of a Job to the start of the next one on the same Slot, or until now."""
    pushed: int = 0
    """Jobs that came by `POST /jobs`; the others came with the answer to a Result."""


class NoopAgent:
    def __init__(self, server: AgentServer, job_seconds: float | None) -> None:
        self._server = server
        self._job_seconds = job_seconds
        """None holds every Job until it is released."""
        self._running: dict[tuple[str, int], Lease] = {}
        self._held: list[Lease] = []
        self._full = asyncio.Event()
        self._ahead: deque[Lease] = deque()
        """Jobs that wait for a Slot here."""
        self._freed: deque[float] = deque()
        """When each idle Slot became free; those that never worked are not among them."""
        self._working = 0
        self._results: asyncio.Queue[Lease] = asyncio.Queue()
        self._measured = IdleTimes([])

    async def live(self, orchestrator_port: int) -> None:
        """Register, then report and heartbeat until cancelled."""
        reporters = [WireConnection(HOST, orchestrator_port) for _ in range(REPORTERS)]
        status, body = await reporters[0].post("/servers", codec.encode(self._server))
        if status != 201:
            raise SystemExit(f"registration refused with {status}: {body!r}")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat(WireConnection(HOST, orchestrator_port)))
            for reporter in reporters:
                tasks.create_task(self._report(reporter))

    async def handle(self, path: str, body: bytes) -> tuple[int, bytes]:
        match path:
            case "/jobs":
                load = codec.decode(body, list[Assignment])
                self._measured.pushed += len(load)
                for assignment in load:
                    self._take(assignment)
                return 202, codec.encode(Taken())
            case "/cancel":
                for lease in codec.decode(body, list[Lease]):
                    self._running.pop((lease.job_id, lease.attempt), None)
                    self._held = [held for held in self._held if held != lease]
                return 200, codec.encode(Accepted())
            case "/full":
                await self._full.wait()
                return 200, codec.encode(Accepted())
            case "/release":
                self._full.clear()
                held, self._held = self._held, []
                for lease in held:
                    self._end(lease)
                return 200, codec.encode(Accepted())
            case "/measured":
                measured, self._measured = self._measured, IdleTimes([])
                now = time.perf_counter()
                measured.gaps += [now - freed for freed in self._freed]
                return 200, msgspec.json.encode(measured)
            case "/park" | "/resume":
                return 200, codec.encode(Accepted())
            case _:
                return 404, b""

    def _take(self, assignment: Assignment) -> None:
        """Start the Job on a free Slot, or keep it until there is one."""
        lease = assignment.lease
        self._running[lease.job_id, lease.attempt] = lease
        if self._working < self._server.slots:
            self._start(lease)
        else:
            self._ahead.append(lease)

    def _start(self, lease: Lease) -> None:
        self._working += 1
        if self._freed:
            self._measured.gaps.append(time.perf_counter() - self._freed.popleft())
        if self._job_seconds is None:
            self._held.append(lease)
            if len(self._held) == self._server.slots:
                self._full.set()
        elif self._job_seconds == 0:
            self._end(lease)
        else:  # spread, so that the Slots do not end their Jobs together
            seconds = self._job_seconds * random.uniform(0.5, 1.5)
            asyncio.get_running_loop().call_later(seconds, self._end, lease)

    def _end(self, lease: Lease) -> None:
        self._working -= 1
        self._freed.append(time.perf_counter())
        if (lease.job_id, lease.attempt) in self._running:
            self._results.put_nowait(lease)
        while self._ahead and self._working < self._server.slots:
            following = self._ahead.popleft()
            if (following.job_id, following.attempt) in self._running:
                self._start(following)

    def _result(self, lease: Lease) -> Result:
        return Result(lease=lease, outcome=Outcome.COMPLETED, reward=1.0, trajectory=TRAJECTORY)

    async def _report(self, orchestrator: WireConnection) -> None:
        while True:
            leases = [await self._results.get()]
            while not self._results.empty() and len(leases) < MAX_TOGETHER:
                leases.append(self._results.get_nowait())
            results = [self._result(lease) for lease in leases]
            status, body = await orchestrator.post("/results?more=true", codec.encode(results))
            for lease in leases:
                self._running.pop((lease.job_id, lease.attempt), None)
            if status == 200:
                for reported in codec.decode(body, list[Reported]):
                    if reported.assignment is not None:
                        self._take(reported.assignment)
            elif status != 409:
                raise SystemExit(f"results refused with {status}: {body!r}")

    async def _beat(self, orchestrator: WireConnection) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            leases = tuple(self._running.values())
            heartbeat = Heartbeat(server_id=self._server.server_id, leases=leases)
            status, body = await orchestrator.post("/heartbeats", codec.encode(heartbeat))
            if status != 200:
                raise SystemExit(f"heartbeat refused with {status}: {body!r}")
            self._obey(heartbeat, codec.decode(body, HeartbeatReply))

    def _obey(self, heartbeat: Heartbeat, reply: HeartbeatReply) -> None:
        """Nothing here runs for so long that it would matter."""


async def live(agent: NoopAgent, port: int, orchestrator_port: int) -> None:
    """Until SIGTERM."""
    await serve(HOST, port, agent.handle)
    living = asyncio.create_task(agent.live(orchestrator_port))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, living.cancel)
    try:
        await living
    except asyncio.CancelledError:
        return


async def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.noop_agent", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--orchestrator-port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--job-seconds", type=float, help="held until released if not given")
    options = parser.parse_args()
    server = AgentServer(
        server_id=f"noop-{options.port}",
        url=f"http://{HOST}:{options.port}",
        slots=options.slots,
        ahead=jobs_ahead(options.slots),
        environments=(ENVIRONMENT,),
    )
    await live(NoopAgent(server, options.job_seconds), options.port, options.orchestrator_port)


if __name__ == "__main__":
    asyncio.run(main())
