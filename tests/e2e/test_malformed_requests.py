"""What is thrown at a service breaks, hangs and swells nothing."""

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import requests

from rollyard import Client
from rollyard.tokens import read_tokens
from tests.deployment_fixtures import RunningDeployment
from tests.e2e.malformed import Routes, malformed_requests

SEED = 20261121
REQUESTS = 1200
HANG_SECONDS = 20.0
MAX_GROWTH = 64 * 2**20
SLOW_SOCKETS = 200

LEASE = {"job_id": "none/g/0", "attempt": 1, "server_id": "agent-0", "slot": "agent-0#0"}
PROMPT = {"prompt_id": "p", "instance": {"data_source": "arithmetic", "question": "1+1"}}
JOB = {
    "job_id": "none/g/0",
    "run_id": "none",
    "group_id": "g",
    "member": 0,
    "prompt": PROMPT,
    "sampling": {"temperature": 1.0},
    "limits": {"max_turns": 2},
}
RESULT = {"lease": LEASE, "outcome": "infra_failed", "error": "no disk"}
SAMPLES: dict[str, Any] = {
    "/runs": {"run_id": "r", "group_size": 2, "sampling": {}, "limits": {}},
    "/runs/<run_id>/prompts": [PROMPT],
    "/runs/<run_id>/batches": {"batch_id": "b", "requested_batch_size": 2},
    "/score": {"token_ids": {"array": "i", "base64": "AQAAAA=="}},
    "/servers": {"server_id": "ghost", "url": "http://127.0.0.1:9", "slots": 1, "environments": []},
    "/servers/leave": {"server_id": "nobody"},
    "/llm-nodes/leave": {"node_id": "nobody"},
    "/heartbeats": {"server_id": "nobody", "leases": [LEASE]},
    "/results": [RESULT],
    "/jobs": [{"job": JOB, "lease": LEASE}],
    "/cancel": [LEASE],
}
DOOR_SAMPLES: dict[str, Any] = {
    "/process": {
        "instance": {"data_source": "arithmetic", "question": "1+1", "answer": "2"},
        "sampling_params": {"max_iterations": 2, "max_output_tokens": 16, "max_model_len": 200},
    },
    "/cancel": {"job_id": "nobody"},
}
ORCHESTRATOR: Routes = (
    ("POST", "/runs"),
    ("GET", "/runs/<run_id>"),
    ("POST", "/runs/<run_id>/prompts"),
    ("POST", "/runs/<run_id>/batches"),
    ("GET", "/runs/<run_id>/batches/<batch_id>"),
    ("POST", "/runs/<run_id>/batches/<batch_id>/ack"),
    ("POST", "/runs/<run_id>/close"),
    ("POST", "/runs/<run_id>/weights"),
    ("POST", "/weights"),
    ("POST", "/score"),
    ("POST", "/servers"),
    ("POST", "/servers/leave"),
    ("POST", "/heartbeats"),
    ("POST", "/results"),
    ("POST", "/llm-nodes"),
    ("POST", "/llm-nodes/leave"),
    ("GET", "/status"),
    ("GET", "/occupancy"),
    ("GET", "/metrics"),
    ("GET", "/livez"),
)
AGENT_SERVER: Routes = (
    ("POST", "/jobs"),
    ("POST", "/cancel"),
    ("GET", "/status"),
    ("GET", "/metrics"),
    ("GET", "/livez"),
)
PRORL_DOOR: Routes = (
    ("POST", "/start"),
    ("GET", "/status"),
    ("POST", "/process"),
    ("POST", "/cancel"),
    ("GET", "/metrics"),
    ("GET", "/livez"),
)
"""Without those that close it, or take its LLM servers away."""


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def status_of(url: str, request: bytes) -> int:
    """The status of the answer; 0 for a connection that was closed without one."""
    with socket.create_connection(address(url), HANG_SECONDS) as connection:
        try:
            connection.sendall(request)
            with contextlib.suppress(OSError):  # closed by the other side already
                connection.shutdown(socket.SHUT_WR)
            line = connection.makefile("rb").readline()
        except (BrokenPipeError, ConnectionResetError):
            return 0
    return int(line.split()[1]) if line else 0


def resident_bytes(server: psutil.Process) -> int:
    """Memory of a service's own processes; sandboxes, of which it keeps some, are no part of it."""
    return sum(p.memory_info().rss for p in (server, *server.children()))


def bombard(url: str, requests: Iterator[bytes]) -> Counter[int]:
    with ThreadPoolExecutor(8) as threads:
        return Counter(threads.map(lambda request: status_of(url, request), requests))


def assert_unharmed(
    url: str, server: psutil.Process, routes: Routes, samples: dict[str, Any], token: str
) -> None:
    bombard(url, malformed_requests(routes, samples, token, 300, seed=SEED - 1))  # warm
    workers = server.children()
    before = resident_bytes(server)
    statuses = bombard(url, malformed_requests(routes, samples, token, REQUESTS, seed=SEED))
    assert sum(statuses.values()) == REQUESTS
    # 501 is what HTTP has for a transfer coding that nobody knows
    broken = {status: number for status, number in statuses.items() if status >= 500}
    assert set(broken) <= {501}, (statuses, "seed", SEED)
    assert sum(number for status, number in statuses.items() if 400 <= status < 500) > REQUESTS / 3
    assert server.children() == workers, "a worker died"
    assert resident_bytes(server) - before < MAX_GROWTH


@pytest.fixture
def token(battered_deployment: RunningDeployment) -> str:
    return read_tokens(battered_deployment.directory / "tokens").widest


def test_malformed_requests_break_nothing(
    battered_deployment: RunningDeployment, token: str
) -> None:
    orchestrator = battered_deployment.member("-m orchestrator ")
    assert_unharmed(battered_deployment.url, orchestrator, ORCHESTRATOR, SAMPLES, token)
    agent = battered_deployment.member("--server-id agent-0")
    agent_url = next(
        s.url for s in Client(battered_deployment.url).status().servers if s.server_id == "agent-0"
    )
    assert_unharmed(agent_url, agent, AGENT_SERVER, SAMPLES, token)
    door = battered_deployment.door_url
    started = requests.post(
        f"{door}/start", headers={"Authorization": f"Bearer {token}"}, timeout=20
    )
    started.raise_for_status()
    assert_unharmed(door, agent, PRORL_DOOR, DOOR_SAMPLES, token)


def test_callers_that_never_finish_their_request_do_not_keep_others_out(
    battered_deployment: RunningDeployment,
) -> None:
    slow = [socket.create_connection(address(battered_deployment.url)) for _ in range(SLOW_SOCKETS)]
    try:
        for connection in slow:
            connection.sendall(b"POST /runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        began = time.monotonic()
        Client(battered_deployment.url, patience_seconds=0).status()
        assert time.monotonic() - began < 5
    finally:
        for connection in slow:
            connection.close()
