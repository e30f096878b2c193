"""LLM servers that a trainer runs itself: announced, heard of, and labelled when it says so."""

from array import array

import pytest

from orchestrator.queues import Queues
from rollyard import Client
from rollyard.announcements import Announcements
from rollyard.api import OrchestratorAPI
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable
from rollyard.http import Peer
from rollyard.messages import Accepted, LLMNode, LLMNodeList, ToServe, TrainerServers
from tests.waiting import until

SERVERS = ("http://10.0.0.1:3000", "http://10.0.0.2:3000")


def announced(url: str) -> dict[str, tuple[str, ...]]:
    """Name -> LLM servers, as agent servers are told."""
    nodes = Peer(url, name="orchestrator").get("/llm-nodes", LLMNodeList).nodes
    return {node.node_id: node.servers for node in nodes}


def test_they_are_announced_until_the_client_is_closed(url: str) -> None:
    with Client(url) as client:
        client.announce_llm_servers([f"{SERVERS[0]}/v1", f"{SERVERS[1]}/"])
        assert announced(url) == {"trainer": SERVERS}
        client.announce_llm_servers(SERVERS[:1])
        client.announce_llm_servers(SERVERS[1:], name="other")
        assert announced(url) == {"trainer": SERVERS[:1], "other": SERVERS[1:]}
        client.announce_llm_servers([], name="other")
        assert announced(url) == {"trainer": SERVERS[:1]}
    assert announced(url) == {}


def test_they_are_announced_again_and_again(url: str, patient_queues: Queues) -> None:
    """What an orchestrator without a memory hears at its next announcement."""
    with Client(url) as client:
        client.announce_llm_servers(SERVERS)
        patient_queues.weights.leave("trainer")
        until("they are known again", lambda: announced(url) == {"trainer": SERVERS})


def test_what_was_taken_back_is_not_announced_by_a_late_sign_of_life(url: str) -> None:
    api = OrchestratorAPI(url)
    announcements = Announcements(api)
    servers = TrainerServers(name="trainer", servers=SERVERS)
    announcements.announce(servers)
    announcements.close()
    announcements._again(servers)
    assert announced(url) == {}
    api.close()


def test_what_their_trainer_says_is_on_them_counts(url: str, client: Client) -> None:
    client.announce_llm_servers(SERVERS)
    assert client.weight_version() == 0
    report = client.weights_updated(1)
    assert (report.version, report.servers, report.paused_seconds) == (1, SERVERS, 0.0)
    assert client.weight_version() == 1
    assert client.weights_updated(1) == report
    with pytest.raises(Conflict, match="version 0 does not rise"):
        client.weights_updated(0)


def test_they_hold_up_no_job_whatever_is_published(
    url: str, client: Client, patient_queues: Queues
) -> None:
    client.announce_llm_servers(SERVERS)
    client.weights_updated(3)
    weights = patient_queues.weights
    assert patient_queues.connection.ask(weights.serving()).unready == {}
    until("it was heard of again", lambda: announced(url))
    assert patient_queues.connection.ask(weights.serving()).unready == {}


def test_rollyard_neither_loads_weights_on_them_nor_scores_with_them(
    url: str, client: Client
) -> None:
    client.announce_llm_servers(SERVERS)
    with pytest.raises(InvalidMessage, match="get their weights from their trainer"):
        client.update_weights("/checkpoint", 1)
    assert client.weight_version() == 0
    with pytest.raises(LLMUnavailable, match="no LLM servers but the trainer's own"):
        OrchestratorAPI(url).score(array("i", [1, 2, 3]))


def test_an_llm_node_keeps_its_name(url: str, client: Client) -> None:
    node = LLMNode(node_id="gpu1", url=url, servers=(), model="/model")
    Peer(url, name="orchestrator").post("/llm-nodes", node, ToServe)
    with pytest.raises(Conflict, match="'gpu1' is an LLM node"):
        client.announce_llm_servers(SERVERS, name="gpu1")


def test_an_llm_node_without_a_control_service_is_refused(url: str) -> None:
    node = LLMNode(node_id="gpu1", url="", servers=SERVERS, model="/model")
    with pytest.raises(InvalidMessage, match="not the URL of a service"):
        Peer(url, name="orchestrator").post("/llm-nodes", node, ToServe)


@pytest.mark.parametrize("servers", [["ftp://10.0.0.1"], [SERVERS[0], SERVERS[0]]])
def test_urls_that_make_no_sense_are_refused(servers: list[str], client: Client) -> None:
    with pytest.raises(InvalidMessage):
        client.announce_llm_servers(servers)


def test_an_announcement_is_accepted_as_often_as_it_comes(url: str) -> None:
    peer = Peer(url, name="orchestrator")
    for _ in range(2):
        peer.post("/llm-servers", TrainerServers(name="t", servers=SERVERS), Accepted)
    assert announced(url) == {"t": SERVERS}
