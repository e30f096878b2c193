"""The agent server's routes, over real HTTP."""

from collections.abc import Iterator

import msgspec
import pytest
import requests

from agent_server.agents.chat_template import ChatTemplate
from agent_server.app import create_app
from agent_server.environments.in_thread import in_thread
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import Stages
from agent_server.metrics import Metrics
from agent_server.status import Status
from launch.doctor.check import CheckVerdict
from launch.doctor.servers import server_checks
from rollyard import codec
from rollyard.errors import Conflict, InvalidMessage, Unavailable
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServerStatus,
    FleetStatus,
    GiveBack,
    GivenBack,
    LLMServersToAsk,
)
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    EchoEnvironment,
    NeverAnswers,
    SandboxesOfNothing,
    assign,
    hand,
    make_job,
)
from tests.agent_server.running import AGENTS
from tests.serving_threads import served

ECHO = {"data_source": "echo"}


class Served:
    def __init__(self, template: ChatTemplate) -> None:
        self.unready = ""
        self.policy = NeverAnswers()
        metrics = Metrics()
        stages = Stages(
            environments={"echo": in_thread(EchoEnvironment)},
            agents=AGENTS,
            sandboxes=SandboxesOfNothing(),
            policy=self.policy,
            template=template,
        )
        self.runner = JobRunner(RunnerSettings(slots=2), stages, metrics, lambda _: None)
        self.app = create_app("agent-1", self.runner, metrics, lambda: self.unready)


@pytest.fixture
def server(template: ChatTemplate) -> Iterator[Served]:
    running = Served(template)
    yield running
    running.runner.close(5)


@pytest.fixture
def agent(server: Served) -> Iterator[Peer]:
    with served(server.app) as url:
        yield Peer(url, name="agent server")


def test_an_accepted_job_takes_a_slot_until_it_is_cancelled(agent: Peer, server: Served) -> None:
    assignment = assign(make_job(instance=ECHO))
    hand(agent, assignment)
    status = agent.get("/status", Status)
    assert (status.server_id, status.slots, status.busy) == ("agent-1", 2, 1)
    assert status.leases == (assignment.lease,)
    agent.post("/cancel", [assignment.lease], Accepted)
    server.runner.close(5)  # waits until the attempt is gone
    assert agent.get("/status", Status).busy == 0


def test_the_status_says_what_policies_could_do_to_the_machine(agent: Peer, server: Served) -> None:
    def complete(status: Status) -> Status:
        return msgspec.structs.replace(status, unsafe="nothing holds policies back")

    assert agent.get("/status", Status).unsafe == ""
    open_to_all = create_app("agent-1", server.runner, Metrics(), lambda: "", complete=complete)
    with served(open_to_all) as url:
        unsafe = Peer(url, name="agent server").get("/status", Status).unsafe
        assert unsafe == "nothing holds policies back"
        (check,) = (each for each in server_checks(fleet_of(url)) if each.name == "sandboxes")
    assert check.verdict is CheckVerdict.FAILED
    assert check.finding == f"1 unsafe: agent-1: {unsafe}"


def fleet_of(url: str) -> FleetStatus:
    server = AgentServerStatus(server_id="agent-1", url=url, slots=1, busy_slots=0, environments=())
    return FleetStatus(runs=(), servers=(server,), llm_nodes=())


def test_a_job_is_parked_and_goes_on_and_unknown_ones_are_ignored(
    agent: Peer, server: Served
) -> None:
    assignment, unknown = (assign(make_job(job_id=name, instance=ECHO)) for name in ("1", "2"))
    hand(agent, assignment)
    assert server.policy.asked.wait(PATIENCE_SECONDS)
    server.policy.asked.clear()
    leases = [unknown.lease, assignment.lease]
    agent.post("/park", leases, Accepted)
    assert agent.get("/status", Status).leases == (assignment.lease,)
    agent.post("/resume", leases, Accepted)
    assert server.policy.asked.wait(PATIENCE_SECONDS)


def test_what_is_recalled_is_handed_back(agent: Peer, server: Served) -> None:
    """Here everything has its Slot."""
    assignment = assign(make_job(instance=ECHO))
    hand(agent, assignment)
    assert agent.post("/recall", GiveBack(jobs=1), GivenBack).leases == ()
    assert agent.get("/status", Status).leases == (assignment.lease,)


def test_the_llm_servers_to_ask_are_told_it(server: Served) -> None:
    told: list[LLMServersToAsk] = []
    app = create_app("agent-1", server.runner, Metrics(), lambda: "", ask_these=told.append)
    order = LLMServersToAsk(proxies={"http://10.0.0.1:8010": 4}, gone=("http://10.0.0.2:8010",))
    with served(app) as url:
        agent = Peer(url, name="agent server")
        agent.post("/llm-servers", order, Accepted)
        assert told == [order]
        url_of_none, of_none = {"10.0.0.1": 1}, {"http://10.0.0.1:8010": 0}
        wrong_ones = [{"proxies": each} for each in ({}, url_of_none, of_none)]
        for wrong in (*wrong_ones, {}):
            with pytest.raises(InvalidMessage):
                agent.post("/llm-servers", wrong, Accepted)


def test_an_accepted_job_is_answered_with_202(agent: Peer) -> None:
    body = codec.encode_json([assign(make_job(instance=ECHO))])
    headers = {"Content-Type": codec.JSON}
    assert requests.post(f"{agent.url}/jobs", body, headers=headers, timeout=5).status_code == 202


def test_a_job_beyond_the_slots_is_a_conflict(agent: Peer) -> None:
    for number in range(2):
        hand(agent, assign(make_job(job_id=f"job-{number}", instance=ECHO)))
    with pytest.raises(Conflict, match="all 2 slots are busy"):
        hand(agent, assign(make_job(job_id="job-2", instance=ECHO)))


def test_an_unknown_environment_is_refused(agent: Peer) -> None:
    with pytest.raises(InvalidMessage, match="unknown environment 'chess'"):
        hand(agent, assign(make_job(instance={"data_source": "chess"})))


def test_a_draining_server_is_unavailable(agent: Peer, server: Served) -> None:
    server.runner.drain()
    with pytest.raises(Unavailable, match="shutting down"):
        hand(agent, assign(make_job(instance=ECHO)))


def test_what_is_no_assignment_is_refused_in_json(agent: Peer) -> None:
    answer = requests.post(f"{agent.url}/jobs", json={"job": 7}, timeout=5)
    assert answer.status_code == 400
    assert answer.json()["code"] == "InvalidMessage"


def test_readiness_says_what_is_missing(agent: Peer, server: Served) -> None:
    agent.get("/readyz", Accepted)
    server.unready = "no LLM"
    with pytest.raises(Unavailable, match="not ready: no LLM"):
        agent.get("/readyz", Accepted)
    assert requests.get(f"{agent.url}/livez", timeout=5).ok


def test_metrics_count_slots_and_jobs(agent: Peer) -> None:
    hand(agent, assign(make_job(instance=ECHO)))
    text = requests.get(f"{agent.url}/metrics", timeout=5).text
    assert "rollyard_agent_slots 2.0" in text
    assert "rollyard_agent_slots_busy 1.0" in text
    assert 'rollyard_agent_jobs_total{outcome="infra_failed"} 0.0' in text
