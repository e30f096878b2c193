"""An agent server whose Jobs only take time: `python -m benchmarks.stand_in`.

It speaks the agent servers' protocol (registers, heartbeats, takes Jobs, reports Results and takes
the next Job from the answer) and spends as little as possible of the machine on it. Its workload
decides how long a Job takes and which Result it has; a parked Job stands still. Beyond the
protocol, `POST /full` and `POST /empty` answer once every Slot is busy or none is, `POST /release`
ends the Jobs that are held, `POST /idle` tells how long Slots were idle, and `POST /spent` how long
they worked for each run. It may also register as an LLM node, whose weights
are only a version.
"""

import argparse
import asyncio
import time
from collections import defaultdict, deque

import msgspec

from agent_server.jobs.slots import jobs_ahead
from benchmarks.http_wire import WireConnection, serve
from benchmarks.workloads import (
    ENVIRONMENT,
    Planned,
    StandInWorkload,
    as_rows_say,
    no_ops,
    replay,
)
from orchestrator.ids import run_of
from rollyard import codec
from rollyard.messages import (
    Accepted,
    AgentServer,
    Assignment,
    Heartbeat,
    HeartbeatReply,
    Lease,
    LLMNode,
    Outcome,
    Reported,
    Result,
    Taken,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)

HOST = "127.0.0.1"
HEARTBEAT_SECONDS = 2.0
REPORTERS = 4
MAX_TOGETHER = 64
"""Maximum number of Results in one request, as of a real agent server."""


class IdleTimes(msgspec.Struct):
    """Idle times of Slots since the last reading, in seconds."""

    gaps: list[float]
    """Times from the end of a Job to the start of the next one on the same Slot, or until now."""
    pushed: int = 0
    """Jobs that came by `POST /jobs`; the others came with the answer to a Result."""


class JobOnSlot:
    def __init__(self, planned: Planned) -> None:
        self.result = planned.result
        self.left = planned.seconds
        """Seconds that it still runs; None if it is held until it is released."""
        self.began = time.perf_counter()
        self.since = 0.0
        self.timer: asyncio.TimerHandle | None = None
        """Timer of its end; None while it is parked or held."""


class StandIn:
    def __init__(self, server: AgentServer, workload: StandInWorkload) -> None:
        self._server = server
        self._workload = workload
        self._weight_version = 0
        self._leases: dict[Lease, None] = {}
        """Leases of all Jobs here, until their Results are answered."""
        self._ahead: dict[Lease, Assignment] = {}
        """Jobs that wait for a Slot here."""
        self._working: dict[Lease, JobOnSlot] = {}
        self._full, self._empty = asyncio.Event(), asyncio.Event()
        self._empty.set()
        self._spent: defaultdict[str, float] = defaultdict(float)
        """Run -> seconds of Slots that have worked on its ended Jobs."""
        self._freed: deque[float] = deque()
        """Time at which each idle Slot became free, without Slots that never worked."""
        self._results: asyncio.Queue[Result] = asyncio.Queue()
        self._idle = IdleTimes([])

    async def live(self, orchestrator_port: int, *, as_llm_node: bool) -> None:
        """Register, then report and heartbeat until cancelled."""
        reporters = [WireConnection(HOST, orchestrator_port) for _ in range(REPORTERS)]
        if as_llm_node:
            name, url = self._server.server_id, self._server.url
            node = LLMNode(node_id=name, url=url, servers=(), model="none", serves=0)
            await _post(reporters[0], "/llm-nodes", node)
        await _post(reporters[0], "/servers", self._server)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat(WireConnection(HOST, orchestrator_port)))
            for reporter in reporters:
                tasks.create_task(self._report(reporter))

    async def handle(self, path: str, body: bytes) -> tuple[int, bytes]:
        match path:
            case "/jobs":
                load = codec.decode(body, list[Assignment])
                self._idle.pushed += len(load)
                for assignment in load:
                    self._take(assignment)
                return 202, codec.encode(Taken())
            case "/cancel" | "/park" | "/resume":
                act = {"/cancel": self._stop, "/park": self._park, "/resume": self._resume}[path]
                for lease in codec.decode(body, list[Lease]):
                    act(lease)
            case "/full":
                await self._full.wait()
            case "/empty":
                await self._empty.wait()
            case "/spent":
                return 200, codec.encode(self._spent_till_now())
            case "/release":
                for lease, job in list(self._working.items()):
                    self._end(lease, job.result)
            case "/idle":
                idle, self._idle = self._idle, IdleTimes([])
                now = time.perf_counter()
                idle.gaps += [now - freed for freed in self._freed]
                return 200, codec.encode(idle)
            case "/weights":
                return 200, self._weights(body)
            case _:
                return 404, b""
        return 200, codec.encode(Accepted())

    def _weights(self, update: bytes) -> bytes:
        """The answer to a request for the version, or to an update, which is carried out."""
        if not update:
            return codec.encode(WeightVersion(version=self._weight_version))
        self._weight_version = codec.decode(update, WeightUpdate).version
        report = WeightReport(version=self._weight_version, servers=(), paused_seconds=0.0)
        return codec.encode(report)

    def _take(self, assignment: Assignment) -> None:
        """Start the Job on a free Slot, or keep it until there is one."""
        self._leases[assignment.lease] = None
        if len(self._working) < self._server.slots:
            self._start(assignment)
        else:
            self._ahead[assignment.lease] = assignment

    def _start(self, assignment: Assignment) -> None:
        if self._freed:
            self._idle.gaps.append(time.perf_counter() - self._freed.popleft())
        job = JobOnSlot(self._workload(assignment, self._weight_version))
        self._working[assignment.lease] = job
        self._empty.clear()
        if len(self._working) == self._server.slots:
            self._full.set()
        if job.left == 0:
            self._end(assignment.lease, job.result)
        else:
            self._resume(assignment.lease)

    def _resume(self, lease: Lease) -> None:
        job = self._working.get(lease)
        if job is not None and job.timer is None and job.left is not None:
            loop = asyncio.get_running_loop()
            job.since = loop.time()
            job.timer = loop.call_later(job.left, self._end, lease, job.result)

    def _park(self, lease: Lease) -> None:
        job = self._working.get(lease)
        if job is not None and job.timer is not None and job.left is not None:
            job.timer.cancel()
            job.timer = None
            job.left -= asyncio.get_running_loop().time() - job.since

    def _stop(self, lease: Lease) -> None:
        """Stop a Job, and report it at once, which frees the Slot."""
        cancelled = Result(lease=lease, outcome=Outcome.CANCELLED, error="cancelled")
        self._park(lease)
        if lease in self._working:
            self._end(lease, cancelled)
        elif self._ahead.pop(lease, None) is not None:
            self._results.put_nowait(cancelled)

    def _end(self, lease: Lease, result: Result) -> None:
        self._spent[run_of(lease.job_id)] += time.perf_counter() - self._working.pop(lease).began
        self._full.clear()
        if not self._working:
            self._empty.set()
        self._freed.append(time.perf_counter())
        self._results.put_nowait(result)
        if self._ahead and len(self._working) < self._server.slots:
            self._start(self._ahead.pop(next(iter(self._ahead))))

    def _spent_till_now(self) -> dict[str, float]:
        spent, now = self._spent.copy(), time.perf_counter()
        for lease, job in self._working.items():
            spent[run_of(lease.job_id)] += now - job.began
        return dict(spent)

    async def _report(self, orchestrator: WireConnection) -> None:
        while True:
            results = [await self._results.get()]
            while not self._results.empty() and len(results) < MAX_TOGETHER:
                results.append(self._results.get_nowait())
            status, body = await _post(orchestrator, "/results?more=true", results, or_status=409)
            for result in results:
                self._leases.pop(result.lease, None)
            if status != 409:
                for reported in codec.decode(body, list[Reported]):
                    if reported.assignment is not None:
                        self._take(reported.assignment)

    async def _beat(self, orchestrator: WireConnection) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            heartbeat = Heartbeat(server_id=self._server.server_id, leases=tuple(self._leases))
            _, body = await _post(orchestrator, "/heartbeats", heartbeat)
            for lease in codec.decode(body, HeartbeatReply).stop:
                self._stop(lease)


async def _post(
    orchestrator: WireConnection, path: str, message: object, or_status: int = 200
) -> tuple[int, bytes]:
    """The status and the body of the answer. Ends the process if that is neither success nor
    `or_status`."""
    status, body = await orchestrator.post(path, codec.encode(message))
    if status not in (200, 201, or_status):
        raise SystemExit(f"{path} is refused with {status}: {body!r}")
    return status, body


def _workload(options: argparse.Namespace) -> StandInWorkload:
    if options.seed is not None:
        return replay(options.seed)
    return as_rows_say if options.job_seconds_of_rows else no_ops(options.job_seconds)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.stand_in", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--orchestrator-port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--job-seconds", type=float, help="held until released if not given")
    parser.add_argument("--job-seconds-of-rows", action="store_true", help="as each row says")
    parser.add_argument("--seed", type=int, help="of a simulated dataset to replay")
    options = parser.parse_args()
    replays = options.seed is not None
    server = AgentServer(
        server_id=f"stand-in-{options.port}",
        url=f"http://{HOST}:{options.port}",
        slots=options.slots,
        ahead=0 if replays else jobs_ahead(options.slots),
        environments=(ENVIRONMENT,),
    )
    stand_in = StandIn(server, _workload(options))
    await serve(HOST, options.port, stand_in.handle)
    await stand_in.live(options.orchestrator_port, as_llm_node=replays)


if __name__ == "__main__":
    asyncio.run(main())
