"""Agent servers that call the orchestrator, and that it cannot call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from launch.free_ports import free_port
from orchestrator.agent_servers import AgentServers
from orchestrator.dispatcher import Dispatcher
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.queues.limits import MAX_UNREACHED
from orchestrator.sampling.decisions import Open
from rollyard.messages import AgentServer, Heartbeat, Prompt, RunSettings, ServerState
from tests.orchestrator.fake_agents import FakeAgent
from tests.orchestrator.moves import conditions, decide
from tests.queue_fixtures import QueueMaker
from tests.serving_threads import served

FAR, NEAR = "far-0", "near-0"


@pytest.fixture
def far_url() -> str:
    """Nobody listens there."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def open_queues(
    make_queues: QueueMaker,
    settings: RunSettings,
    prompt: Callable[[str], Prompt],
    far_url: str,
) -> Queues:
    """An open Run with four Jobs, and a server of one Slot that cannot be called."""
    queues = make_queues(Queues, lease_seconds=60.0)
    queues.runs.create(settings)
    queues.servers.register(at(FAR, far_url))
    queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    decide(queues, Open())
    return queues


def at(name: str, url: str) -> AgentServer:
    return AgentServer(server_id=name, url=url, slots=1, environments=("arithmetic",))


def dispatcher_of(queues: Queues, senders: ThreadPoolExecutor) -> Dispatcher:
    send = AgentServers(queues.servers, senders).send
    return Dispatcher(queues.leases, queues.servers, send, senders, lambda: None)


def dispatch(dispatcher: Dispatcher, senders: ThreadPoolExecutor) -> None:
    """Pair what there is, and wait until it was sent."""
    dispatcher.step()
    senders.submit(lambda: None).result(30)


def fail_to_deliver(queues: Queues, times: int) -> None:
    with ThreadPoolExecutor(1) as senders:
        dispatcher = dispatcher_of(queues, senders)
        for _ in range(times):
            queues.servers.heartbeat(Heartbeat(server_id=FAR, leases=()))
            dispatch(dispatcher, senders)


def test_a_server_that_cannot_be_called_is_quarantined_and_says_so(
    open_queues: Queues, far_url: str
) -> None:
    with served(FakeAgent(far_url, lambda _: None).app) as near_url:
        open_queues.servers.register(at(NEAR, near_url))
        fail_to_deliver(open_queues, MAX_UNREACHED)
    assert conditions(open_queues)[FAR].state is ServerState.QUARANTINED
    assert conditions(open_queues)[NEAR].state is ServerState.SERVING
    counters = open_queues.runs.read("train").counters
    assert (counters.attempts_failed, counters.jobs_leased) == (0, 1)
    why = Operators(open_queues).why(FAR).reason
    assert why.startswith(f"{FAR} is quarantined for another")
    assert f"the last 3 deliveries did not reach {far_url}, though it calls" in why


def test_a_server_that_could_not_be_called_once_is_not_said_to_run_jobs(
    open_queues: Queues, far_url: str
) -> None:
    fail_to_deliver(open_queues, 1)
    why = Operators(open_queues).why(FAR).reason
    assert why.startswith(f"{FAR} takes no jobs: the last delivery did not reach {far_url}")


def test_a_delivery_that_arrives_ends_the_row(open_queues: Queues, far_url: str) -> None:
    with ThreadPoolExecutor(1) as senders:
        dispatcher = dispatcher_of(open_queues, senders)
        dispatch(dispatcher, senders)
        assert conditions(open_queues)[FAR].unreached == 1
        open_queues.servers.register(at(NEAR, "http://127.0.0.1:9"))
        with served(FakeAgent(far_url, lambda _: None).app, int(far_url.rpartition(":")[2])):
            open_queues.servers.heartbeat(Heartbeat(server_id=FAR, leases=()))
            dispatch(dispatcher, senders)
    assert conditions(open_queues)[FAR].unreached == 0
