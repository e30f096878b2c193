import contextlib
import os
import socket
import subprocess
import sys

import pytest

from launch.free_ports import free_port, free_ports, free_range
from launch.ports import check_free
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


def test_a_port_that_was_chosen_is_not_soon_chosen_again() -> None:
    chosen = [free_port() for _ in range(100)] + list(free_range(10))
    assert len(set(chosen)) == 110


def test_processes_choose_from_different_ports() -> None:
    choose = (
        "from launch.free_ports import free_range; print(*free_range(100), flush=True); input()"
    )
    ports: list[str] = []
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", choose],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert process.stdout is not None
            ports += process.stdout.readline().split()
    ports += map(str, free_range(100))
    assert len(set(ports)) == 400
