"""An agent server that sleeps through the trajectories of a simulated dataset, with the same draws:
`python -m benchmarks.dapo.sleeping_agent`.

Its Jobs stand still while they are parked. It passes for an LLM node as well, whose weights are
nothing but their version.
"""

import argparse
import asyncio

import msgspec

from benchmarks.http_wire import WireConnection
from benchmarks.noop_agent import ENVIRONMENT, HOST, TRAJECTORY, NoopAgent, live
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
    Result,
    Timings,
    WeightReport,
    WeightSpan,
    WeightUpdate,
    WeightVersion,
)
from simulator.dataset import Draw, Try, World

SECONDS_OF_A_MINUTE = 0.04
"""A simulated minute."""


class Sleep:
    """One Job on its Slot."""

    def __init__(self, draw: Draw, weight_version: int) -> None:
        self.draw = draw
        self.weight_version = weight_version
        self.seconds = self.left = draw.seconds / 60 * SECONDS_OF_A_MINUTE
        self.since = 0.0
        self.timer: asyncio.TimerHandle | None = None
        """None while it is parked."""


class SleepingAgent(NoopAgent):
    def __init__(self, server: AgentServer, seed: int) -> None:
        super().__init__(server, None)
        self._world = World(seed)
        self._assignments: dict[str, Assignment] = {}
        self._sleeps: dict[Lease, Sleep] = {}
        self._version = 0

    async def live(self, orchestrator_port: int) -> None:
        name, url = self._server.server_id, self._server.url
        node = LLMNode(node_id=name, url=url, servers=(), model="none", serves=0)
        orchestrator = WireConnection(HOST, orchestrator_port)
        status, body = await orchestrator.post("/llm-nodes", codec.encode(node))
        if status != 200:
            raise SystemExit(f"registration refused with {status}: {body!r}")
        await super().live(orchestrator_port)

    async def handle(self, path: str, body: bytes) -> tuple[int, bytes]:
        acts = {"/park": self._park, "/resume": self._go_on, "/cancel": self._stop}
        if path in acts:
            for lease in codec.decode(body, list[Lease]):
                acts[path](lease)
            return 200, codec.encode(Accepted())
        if path != "/weights":
            return await super().handle(path, body)
        if not body:
            return 200, codec.encode(WeightVersion(version=self._version))
        self._version = codec.decode(body, WeightUpdate).version
        report = WeightReport(version=self._version, servers=(), paused_seconds=0.0)
        return 200, codec.encode(report)

    def _take(self, assignment: Assignment) -> None:
        self._assignments[assignment.lease.job_id] = assignment
        super()._take(assignment)

    def _start(self, lease: Lease) -> None:
        self._working += 1
        job = self._assignments.pop(lease.job_id).job
        place = job.prompt.instance
        wanted = Try(place["row"], place["occurrence"], job.member, lease.attempt - 1)
        self._sleeps[lease] = Sleep(self._world.draw(wanted, self._version), self._version)
        self._go_on(lease)

    def _go_on(self, lease: Lease) -> None:
        sleep = self._sleeps.get(lease)
        if sleep is not None and sleep.timer is None:
            loop = asyncio.get_running_loop()
            sleep.since = loop.time()
            sleep.timer = loop.call_later(sleep.left, self._end, lease)

    def _park(self, lease: Lease) -> None:
        sleep = self._sleeps.get(lease)
        if sleep is not None and sleep.timer is not None:
            sleep.timer.cancel()
            sleep.timer = None
            sleep.left -= asyncio.get_running_loop().time() - sleep.since

    def _stop(self, lease: Lease) -> None:
        """Say so at once, which frees the Slot."""
        self._park(lease)
        if self._sleeps.pop(lease, None) is not None:
            self._working -= 1
            self._results.put_nowait(lease)

    def _result(self, lease: Lease) -> Result:
        sleep = self._sleeps.pop(lease, None)
        if sleep is None:
            return Result(lease=lease, outcome=Outcome.CANCELLED, error="cancelled")
        span = WeightSpan(version=sleep.weight_version, start=8, end=16)
        return Result(
            lease=lease,
            outcome=Outcome.COMPLETED,
            reward=sleep.draw.reward,
            trajectory=msgspec.structs.replace(TRAJECTORY, weight_spans=(span,)),
            timings=Timings(run_seconds=sleep.seconds),
        )

    def _obey(self, heartbeat: Heartbeat, reply: HeartbeatReply) -> None:
        for lease in reply.stop:
            self._stop(lease)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dapo.sleeping_agent", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--orchestrator-port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    server = AgentServer(
        server_id=f"sleeping-{options.port}",
        url=f"http://{HOST}:{options.port}",
        slots=options.slots,
        environments=(ENVIRONMENT,),
    )
    agent = SleepingAgent(server, options.seed)
    asyncio.run(live(agent, options.port, options.orchestrator_port))


if __name__ == "__main__":
    main()
