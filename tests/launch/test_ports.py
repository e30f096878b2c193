import os
import socket

import pytest

from launch.ports import check_free, free_ports
from rollyard.errors import LaunchError


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports(agent_servers=2, llm_servers=1)
    assert len(set(ports.named().values())) == 6
    check_free(ports.named())


def test_a_taken_port_is_named_with_its_holder() -> None:
    ports = free_ports(agent_servers=1, llm_servers=1)
    with (
        socket.create_server(("127.0.0.1", ports.redis)),
        pytest.raises(LaunchError, match=rf"port {ports.redis} .* for redis, is taken by pid") as e,
    ):
        check_free(ports.named())
    assert str(os.getpid()) in e.value.message
    assert "--port" in e.value.fix
