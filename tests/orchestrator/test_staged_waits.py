"""Waits that are staged with real queues and fake agent servers, and what is said of each."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from chaos.cluster import Cluster
from chaos.settings import ClusterSettings
from launch.commands import app
from orchestrator.app import create_app
from orchestrator.queues import Queues
from orchestrator.queues.connection import MAX_PING_SECONDS
from orchestrator.sampling.decisions import Open
from orchestrator.service import Orchestrator
from orchestrator.why import why_run
from rollyard import Client
from rollyard.errors import QueueUnavailable, Unavailable
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    Explanation,
    FleetStatus,
    Heartbeat,
    LLMNode,
    Prompt,
    Registered,
    RunSettings,
    ToServe,
)
from tests.orchestrator.fake_agents import fake_agent
from tests.orchestrator.moves import decide
from tests.serving_threads import served
from tests.waiting import until


@pytest.fixture
def peer(orchestrator: Orchestrator) -> Iterator[Peer]:
    with served(create_app(orchestrator)) as url:
        yield Peer(url, name="orchestrator")


def why(peer: Peer, name: str) -> str:
    return peer.get(f"/why/{name}", Explanation).reason


def row() -> dict[str, str]:
    return {"data_source": "arithmetic"}


def test_a_run_that_filters_everything_says_so_with_numbers(peer: Peer) -> None:
    with fake_agent(peer.url, lambda _: 0.0, slots=2):
        run = Client(peer.url).run((row() for _ in range(6)), run_id="train", group_size=2)
        run.request(1)
        until("all groups are filtered", lambda: run.status().counters.groups_filtered == 6)
        sentence = why(peer, "train")
        assert (
            "6 of 6 complete groups were filtered, for by the criterion reward_spread" in sentence
        )
        assert sentence.endswith("they teach nothing: the mean reward is 0")
        assert run.status().waiting_for == sentence


def test_a_trainer_that_is_gone_is_said_to_be_gone(peer: Peer, orchestrator: Orchestrator) -> None:
    run = Client(peer.url).run(
        (row() for _ in range(2)), run_id="train", group_size=2, trainer_silent_seconds=3.0
    )
    assert why(peer, "train") == "the trainer has not requested a batch"
    del run
    stored = orchestrator.queues.runs.read("train")
    silent = msgspec.structs.replace(stored, trainer_silent_seconds=61.0)
    left = msgspec.structs.replace(stored, trainer_left=True)
    fleet = orchestrator.operators.fleet()
    assert why_run(silent, fleet).endswith("a batch; the trainer has not been heard of for 61 s")
    assert why_run(left, fleet).endswith("a batch; the trainer has left the run")


def test_a_job_made_ready_ahead_is_not_said_to_run(
    patient_queues: Queues, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = patient_queues
    queues.runs.create(settings)
    server = AgentServer(
        server_id="agent-0",
        url="http://127.0.0.1:9",
        slots=1,
        ahead=1,
        environments=("arithmetic",),
    )
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    decide(queues, Open())
    assert len(queues.leases.lease(4)) == 2
    orchestrator = Orchestrator(queues)
    try:
        reason = orchestrator.operators.why("train/p0/1").reason
    finally:
        orchestrator.close()
    assert reason.startswith("attempt 1 is on agent-0 since ")
    assert reason.endswith("where 1 of 2 jobs wait for a free slot")


def test_an_orchestrator_is_ready_only_while_a_server_takes_jobs(
    peer: Peer, orchestrator: Orchestrator
) -> None:
    def ready() -> str:
        try:
            peer.get("/readyz", str)
        except Unavailable as error:
            return error.message
        except Exception:  # "ok" is no message of ours
            return ""
        return ""

    assert ready() == "no agent server has registered"
    server = AgentServer(
        server_id="agent-0", url="http://127.0.0.1:9", slots=1, environments=("arithmetic",)
    )
    peer.post("/servers", server, Registered)
    assert ready() == "no LLM node has registered"
    node = LLMNode(node_id="n", url="http://127.0.0.1:9", servers=(), model="m", serves=0)
    peer.post("/llm-nodes", node, ToServe)
    assert ready() == ""
    peer.post("/servers/agent-0/drain", None, Accepted)
    assert ready() == (
        "no agent server takes jobs: agent-0 is draining: an operator asked it to leave"
    )
    orchestrator.queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=()))


@pytest.fixture
def stopped_redis(tmp_path: Path) -> Iterator[str]:
    """The URL of an orchestrator whose Redis stands still."""
    with Cluster(ClusterSettings(directory=tmp_path)) as cluster:
        cluster.start_redis()
        orchestrator = Orchestrator(Queues(cluster.redis_url))
        with served(create_app(orchestrator)) as url:
            cluster.service("redis").signal(signal.SIGSTOP)
            yield url
            cluster.service("redis").signal(signal.SIGCONT)
        orchestrator.close()


@pytest.mark.parametrize("path", ["/why/train", "/status", "/servers", "/readyz", "/jobs"])
def test_whoever_asks_hears_soon_that_redis_stands_still(stopped_redis: str, path: str) -> None:
    patience = 5 * MAX_PING_SECONDS  # far below what a move may take
    peer = Peer(stopped_redis, name="orchestrator", timeout_seconds=patience)
    with pytest.raises(QueueUnavailable, match=r"Redis does not do its work: .*is it running"):
        peer.get(path, FleetStatus)


@pytest.mark.parametrize("command", [["why", "train"], ["status"]])
def test_the_commands_say_so_in_one_sentence(stopped_redis: str, command: list[str]) -> None:
    answer = CliRunner().invoke(app, [*command, "--url", stopped_redis])
    assert answer.exit_code == 1
    assert "Redis does not do its work" in str(answer.exception)
