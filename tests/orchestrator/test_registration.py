"""A server registers once a start, however often it has to say so, and wherever it listens."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from orchestrator.agent_servers import AgentServers
from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Requeue
from rollyard.errors import AgentUnreachable, Unavailable
from rollyard.messages import AgentServer, Assignment, Prompt, RunSettings
from tests.orchestrator.fake_agents import FakeAgent
from tests.orchestrator.moves import conditions, decide
from tests.queue_fixtures import LEASE_SECONDS
from tests.serving_threads import served
from tests.waiting import until


@pytest.fixture
def open_run(
    patient_queues: Queues, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> Queues:
    """A Run with two Jobs that may be leased, and no server yet."""
    queues = patient_queues
    queues.runs.create(settings)
    queues.tasks.submit("train", [prompt("p0")])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    return queues


def take(queues: Queues) -> Assignment:
    (assignment,) = queues.leases.lease()
    return assignment


def test_a_registration_repeated_by_the_same_incarnation_changes_nothing(
    open_run: Queues, server: AgentServer
) -> None:
    queues, named = open_run, msgspec.structs.replace(server, incarnation="first")
    queues.servers.register(named)
    running = take(queues)
    queues.servers.register(named)
    counters = queues.runs.read("train").counters
    assert (counters.jobs_leased, counters.attempts_failed) == (1, 0)
    assert queues.connection.ask(queues.servers.offer()).free_slots == 1
    assert take(queues).lease.slot != running.lease.slot


def test_a_repeated_registration_is_a_sign_of_life(
    patient_queues: Queues, server: AgentServer
) -> None:
    named = msgspec.structs.replace(server, incarnation="first")

    def seen_seconds_ago() -> float:
        return conditions(patient_queues)["agent-0"].seen_seconds_ago

    patient_queues.servers.register(named)
    until("some time passes", lambda: seen_seconds_ago() >= 0.1)
    began = time.monotonic()
    patient_queues.servers.register(named)
    assert seen_seconds_ago() <= time.monotonic() - began + 0.002  # ms are rounded


def test_an_attempt_that_was_stopped_and_ended_with_its_server_is_not_measured(
    open_run: Queues, server: AgentServer
) -> None:
    queues = open_run
    queues.servers.register(server)
    stopped = take(queues).lease
    decide(queues, Requeue(job_ids=(stopped.job_id,)))
    queues.servers.register(server)
    assert conditions(queues)["agent-0"].reclaims == 0


@pytest.mark.parametrize("incarnations", [("first", "second"), ("", "")])
def test_a_server_that_started_again_is_charged_what_it_held(
    open_run: Queues,
    server: AgentServer,
    incarnations: tuple[str, str],
) -> None:
    queues = open_run
    before, after = (msgspec.structs.replace(server, incarnation=i) for i in incarnations)
    queues.servers.register(before)
    take(queues)
    queues.servers.register(after)
    counters = queues.runs.read("train").counters
    assert (counters.jobs_leased, counters.attempts_failed) == (0, 1)
    assert queues.connection.ask(queues.servers.offer()).free_slots == 2


def test_a_server_that_told_another_orchestrator_its_new_address_is_found_there(
    open_run: Queues, server: AgentServer
) -> None:
    queues = open_run
    agents = AgentServers(queues.servers, ThreadPoolExecutor(1))
    agents.know(server)  # where nobody listens any more
    agent = FakeAgent("http://127.0.0.1:9", lambda _: None)
    with served(agent.app) as url:
        queues.servers.register(msgspec.structs.replace(server, url=url))
        agents.send("agent-0", [take(queues), take(queues)])


def test_a_server_that_is_where_it_was_and_silent_is_unreachable(
    open_run: Queues, server: AgentServer
) -> None:
    queues = open_run
    queues.servers.register(server)
    with pytest.raises(AgentUnreachable, match="no answer from agent server 'agent-0'"):
        AgentServers(queues.servers, ThreadPoolExecutor(1)).send("agent-0", [take(queues)])


def test_an_id_is_its_processs_own_while_that_is_alive(
    open_run: Queues, server: AgentServer
) -> None:
    queues = open_run
    mine = msgspec.structs.replace(server, incarnation="first", secret="mine")
    queues.servers.register(mine)
    take(queues)
    thief = msgspec.structs.replace(mine, url="http://127.0.0.1:10", secret="a guess")
    with pytest.raises(Unavailable, match="'agent-0' is another process's, which was heard of"):
        queues.servers.register(thief)
    with pytest.raises(Unavailable):
        queues.servers.register(msgspec.structs.replace(thief, secret=""))
    assert [each.url for each in queues.servers.registered()] == [server.url]
    assert queues.runs.read("train").counters.attempts_failed == 0
    queues.servers.register(msgspec.structs.replace(mine, incarnation="second"))
    assert queues.runs.read("train").counters.attempts_failed == 1


def test_an_id_is_free_once_its_process_left_or_fell_silent(
    queues: Queues, server: AgentServer
) -> None:
    queues.servers.register(msgspec.structs.replace(server, secret="first"))
    queues.servers.leave(server.server_id)
    queues.servers.register(msgspec.structs.replace(server, secret="second"))
    time.sleep(LEASE_SECONDS + 0.1)
    queues.servers.register(msgspec.structs.replace(server, secret="third"))
    assert [each.secret for each in queues.servers.registered()] == [""]
