"""What the dispatcher makes of a Job that its server does not take."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from orchestrator.dispatcher import Dispatcher
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState
from rollyard.errors import AgentUnreachable, Conflict, InvalidMessage, RollyardError, TooLarge
from rollyard.messages import AgentServer, Assignment, Lease, Prompt, Refusal, RunSettings, Taken
from tests.queue_fixtures import QueueMaker


@pytest.fixture
def queues(
    make_queues: QueueMaker,
    settings: RunSettings,
    server: AgentServer,
    prompt: Callable[[str], Prompt],
) -> Queues:
    """An open Run with one Group of two Jobs and one server with two Slots."""
    open_queues = make_queues(Queues)
    open_queues.runs.create(settings)
    open_queues.servers.register(server)
    open_queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    opened = Conclusion(after=0, events=1, state=SamplerState(), decisions=[Open()])
    open_queues.events.conclude("train", opened)
    open_queues.tasks.submit("train", [prompt("p0")])
    return open_queues


def test_a_load_that_is_refused_as_a_whole_costs_only_the_job_that_spoils_it(
    queues: Queues,
) -> None:
    """Prompts that fit one by one may be too large together."""

    def send(_: str, load: Sequence[Assignment]) -> Taken:
        if any(each.job.member == 0 for each in load):
            raise TooLarge("the body is larger than what fits")
        return Taken(refused=())

    with ThreadPoolExecutor(1) as senders:
        assert Dispatcher(queues.leases, queues.servers, send, senders, lambda: None).step()
    counters = queues.runs.read("train").counters
    assert (counters.jobs_queued, counters.jobs_leased, counters.attempts_failed) == (1, 1, 1)


def test_a_job_that_is_recalled_waits_first_and_uncharged(
    queues: Queues, server: AgentServer
) -> None:
    """A server is asked once at a time, or more would come back than can run."""
    one_slot = msgspec.structs.replace(server, slots=1, ahead=1)
    queues.servers.register(one_slot)
    ahead = queues.leases.lease(2)[1].lease
    queues.servers.register(msgspec.structs.replace(one_slot, server_id="agent-1"))
    asked = []

    def recall(server_id: str, jobs: int) -> tuple[Lease, ...]:
        asked.append((server_id, jobs))
        dispatcher.recall()
        return (ahead,)

    with ThreadPoolExecutor(2) as senders:
        dispatcher = Dispatcher(
            queues.leases, queues.servers, lambda *_: Taken(), senders, lambda: None, recall
        )
        dispatcher.recall()
    assert asked == [("agent-0", 1)]
    (again,) = queues.leases.lease(2)
    assert (again.lease.job_id, again.lease.server_id) == (ahead.job_id, "agent-1")
    assert queues.leases.recalls() == {}
    assert queues.runs.read("train").counters.attempts_failed == 0


def dispatch(queues: Queues, refusal: RollyardError) -> None:
    """Both Jobs go to their server together; it takes one of them, or cannot be reached at all."""

    def send(_: str, load: Sequence[Assignment]) -> Taken:
        if isinstance(refusal, AgentUnreachable):
            raise refusal
        last = load[-1].lease
        return Taken(refused=(Refusal(lease=last, code=refusal.code, message=refusal.message),))

    with ThreadPoolExecutor(1) as senders:
        assert Dispatcher(queues.leases, queues.servers, send, senders, lambda: None).step()


@pytest.mark.parametrize("refusal", [Conflict("all 2 slots are busy"), AgentUnreachable("away")])
def test_a_job_that_found_its_server_full_or_away_waits_again_uncharged(
    queues: Queues, refusal: RollyardError
) -> None:
    dispatch(queues, refusal)
    counters = queues.runs.read("train").counters
    undelivered = 2 if isinstance(refusal, AgentUnreachable) else 1
    assert (counters.jobs_queued, counters.jobs_leased) == (undelivered, 2 - undelivered)
    assert counters.attempts_failed == 0


def test_a_job_that_its_server_refuses_is_charged(queues: Queues) -> None:
    dispatch(queues, InvalidMessage("cannot run this"))
    counters = queues.runs.read("train").counters
    assert (counters.jobs_queued, counters.jobs_leased, counters.attempts_failed) == (1, 1, 1)
