"""Which addresses a service may register: the orchestrator's token goes there."""

import socket

import pytest

from orchestrator.addresses import Addresses
from orchestrator.app import create_app
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from rollyard.errors import Forbidden, LaunchError, Unavailable
from rollyard.http import Peer
from rollyard.messages import AgentServer, LLMNode, Registered, ToServe
from tests.serving_threads import served


@pytest.mark.parametrize(
    ("url", "caller"),
    [
        ("http://127.0.0.1:8006", "127.0.0.1"),
        ("http://127.0.0.2:8006", "127.0.0.1"),
        ("http://[::1]:8006", "127.0.0.1"),
        ("http://10.1.2.3:8006", "10.1.2.3"),
        ("http://10.1.2.3:8006", "::ffff:10.1.2.3"),
        ("http://[fd00::5]:8006/agent", "fd00::5"),
    ],
)
def test_a_service_may_register_where_it_calls_from(url: str, caller: str) -> None:
    assert Addresses().checked(url, caller) == url


@pytest.mark.parametrize(
    ("url", "caller"),
    [
        ("http://127.0.0.1:8006", "10.1.2.3"),
        ("http://10.1.2.4:8006", "10.1.2.3"),
        ("http://10.1.2.4:8006", "127.0.0.1"),
        ("http://169.254.169.254", "127.0.0.1"),
        ("http://169.254.169.254", "169.254.169.254"),
        ("http://[fe80::1]:8006", "fe80::1"),
        ("http://[::ffff:169.254.169.254]", "127.0.0.1"),
        ("http://0.0.0.0:8006", "127.0.0.1"),
        ("http://[::]:8006", "127.0.0.1"),
        ("http://224.0.0.1:8006", "127.0.0.1"),
        ("http://2130706433:8006", "10.1.2.3"),
        ("http://8.8.8.8", ""),
    ],
)
def test_no_other_address_is_taken(url: str, caller: str) -> None:
    with pytest.raises(Forbidden, match=r"would show its token at .*"):
        Addresses().checked(url, caller)


def test_an_operator_may_name_networks_and_hosts() -> None:
    addresses = Addresses(["10.1.0.0/16", "localhost"])
    assert addresses.checked("http://10.1.2.4:8006", "10.9.9.9") == "http://10.1.2.4:8006"
    assert addresses.checked("http://localhost:8006", "10.9.9.9").endswith(":8006")
    with pytest.raises(Forbidden):
        addresses.checked("http://10.2.2.4:8006", "10.9.9.9")


def test_nothing_link_local_is_allowed_by_naming_it() -> None:
    addresses = Addresses(["0.0.0.0/0", "169.254.0.0/16"])
    with pytest.raises(Forbidden):
        addresses.checked("http://169.254.169.254/latest", "10.1.2.3")


@pytest.mark.parametrize("name", ["10.1.0.0/99", "10.1.2", "10.1.2.3/16", "fd00::/999"])
def test_what_names_neither_a_network_nor_a_host_is_refused(name: str) -> None:
    with pytest.raises(LaunchError, match="neither a network nor a host"):
        Addresses([name])


def test_the_port_of_redis_is_no_service() -> None:
    addresses = Addresses(redis_url="redis://rollyard@localhost:7007/0")
    with pytest.raises(Forbidden):
        addresses.checked("http://127.0.0.1:7007", "127.0.0.1")
    assert addresses.checked("http://127.0.0.1:7008", "127.0.0.1") == "http://127.0.0.1:7008"


def test_a_host_is_resolved_once_and_its_address_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name could mean another machine when it is called."""

    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
            for address in ("169.254.169.254", "10.1.2.3")
        ]

    monkeypatch.setattr("orchestrator.addresses.socket.getaddrinfo", resolve)
    kept = Addresses().checked("http://node-7:8006/agent", "10.1.2.3")
    assert kept == "http://10.1.2.3:8006/agent"
    assert Addresses().checked("https://node-7:8006", "10.1.2.3") == "https://node-7:8006"


def test_a_host_without_an_address_is_worth_trying_again() -> None:
    with pytest.raises(Unavailable, match="has no address here"):
        Addresses().checked("http://nowhere.invalid:8006", "127.0.0.1")


def test_the_token_goes_to_no_address_that_was_refused(patient_queues: Queues) -> None:
    orchestrator = Orchestrator(patient_queues, token="the-token-of-the-services")
    server = AgentServer(server_id="a", url="http://10.1.2.3", slots=1, environments=())
    node = LLMNode(node_id="n", url="http://169.254.169.254", servers=(), model="m")
    with served(create_app(orchestrator)) as url:
        peer = Peer(url, name="orchestrator")
        with pytest.raises(Forbidden):
            peer.post("/servers", server, Registered)
        with pytest.raises(Forbidden):
            peer.post("/llm-nodes", node, ToServe)
    orchestrator.close()
    assert (patient_queues.servers.registered(), patient_queues.weights.nodes()) == ([], [])
