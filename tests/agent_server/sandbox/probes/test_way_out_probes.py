"""Every probe is tried in a sandbox that is led to a gateway, beside a host that has more to
offer."""

import contextlib
import secrets
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Opening
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.session import GatewaySession
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import OpenSandbox, SandboxNeeds
from tests.agent_server.fakes import EchoEnvironment, Says, make_job
from tests.agent_server.sandbox.probes.probe import Probe
from tests.agent_server.sandbox.probes.test_probes import host_address
from tests.agent_server.sandbox.probes.way_out import WAY_OUT
from tests.agent_server.sandbox.test_way_out import Greeter


@pytest.fixture(scope="module")
def session(template: ChatTemplate) -> Iterator[GatewaySession]:
    task = Task(
        name="t",
        job=make_job(),
        opening=Opening(messages=()),
        prompt=(),
        environment=InThread(EchoEnvironment),
        policy=Says(template),
        template=template,
    )
    with contextlib.closing(Gateway()) as gateway, gateway.open(task, StopSignal()) as opened:
        yield opened


@pytest.fixture(scope="module")
def led(sandboxes: Bubblewrap) -> Iterator[OpenSandbox]:
    with sandboxes.open(SandboxNeeds()) as opened:
        yield opened


@pytest.fixture(scope="module")
def surroundings(
    sandboxes: Bubblewrap, led: OpenSandbox, session: GatewaySession
) -> Iterator[dict[str, str]]:
    """The way out of a sandbox, and services of the host and ways of others that it must miss."""
    url, marker = urlsplit(session.url), f"rollyard-{secrets.token_hex(8)}"
    assert url.hostname is not None
    assert url.port is not None
    with contextlib.ExitStack() as held:
        service, theirs = (held.enter_context(contextlib.closing(Greeter())) for _ in range(2))
        udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(service.address)
        unix = held.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"\0{marker}")
        unix.listen()
        other = held.enter_context(sandboxes.open(SandboxNeeds()))
        beside = held.enter_context(other.leading_to(theirs.address))
        way = held.enter_context(led.leading_to((url.hostname, url.port)))
        yield {
            "way": str(way[1]),
            "gateway": str(url.port),
            "port": str(service.address[1]),
            "beside": str(beside[1]),
            "marker": marker,
            "address": host_address(),
        }
        assert not service.greeted.is_set()
        assert not theirs.greeted.is_set()


@pytest.mark.parametrize("probe", WAY_OUT, ids=lambda probe: probe.name)
def test_an_agent_reaches_the_gateway_and_nothing_else(
    probe: Probe, led: OpenSandbox, surroundings: dict[str, str]
) -> None:
    result = led.run(probe.argv(surroundings), deadline_seconds=20)
    assert "ESCAPED" not in result.output
    assert "HELD" in result.output, result


def test_there_are_no_two_of_one_name() -> None:
    assert len({probe.name for probe in WAY_OUT}) == len(WAY_OUT)
