"""Fault 31 of the fault catalogue in docs/reliability.md: an agent server loses its LLM servers.

It fails until it is quarantined; told to ask others, it works again with all of its slots.
"""

import contextlib
import itertools
import threading
from collections.abc import Iterator

import pytest

from launch.free_ports import free_port
from rollyard import Client, Sampling
from rollyard.http import Peer
from rollyard.messages import Accepted, AgentServerStatus, LLMServersToAsk, RunStatus, ServerState
from rollyard.tokens import read_tokens
from tests.deployment_fixtures import RunningDeployment, StartDeployment
from tests.faults.scale import FULL
from tests.waiting import until

GROUPS = 100_000
"""Of a batch that is never complete: what a server holds then is parked, and asks again with all
its patience, once the next batch is wanted."""
STATE_SECONDS = 240.0
"""Turns are asked again for 20 s, and a quarantine takes 30 s, on a machine that does much else."""


class Over(Exception):
    """The test has seen enough."""


class Training:
    """A run that waits for its first batch, in a thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._train)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _train(self) -> None:
        rows = (
            {"data_source": "arithmetic", "question": f"{n}*7", "answer": str(n * 7)}
            for n in itertools.count(10)
        )
        sampling = Sampling(temperature=1.0, max_response_tokens=24)
        with contextlib.suppress(Over), Client(self._url) as client:
            client.run(rows, run_id="r", group_size=4, sampling=sampling).rollout(
                GROUPS, on_progress=self._end_if_over
            )

    def _end_if_over(self, _: RunStatus) -> None:
        if self._over.is_set():
            raise Over


@pytest.fixture
def client(deployment: RunningDeployment) -> Iterator[Client]:
    with Client(deployment.url) as made:
        yield made


@pytest.fixture
def deployment(start_deployment: StartDeployment) -> RunningDeployment:
    return start_deployment("--llm", "scripted", "--slots", "4")


@pytest.mark.skipif(not FULL, reason="over a minute of both cores, mostly of a quarantine")
def test_an_agent_server_that_is_told_of_others_works_with_all_its_slots_again(
    deployment: RunningDeployment, client: Client
) -> None:
    def server() -> AgentServerStatus:
        (found,) = (each for each in client.status().servers if each.server_id == "agent-1")
        return found

    def ask(url: str) -> None:
        token = read_tokens(deployment.directory / "tokens").for_services
        peer = Peer(server().url, name="agent-1", token=token)
        peer.post("/llm-servers", LLMServersToAsk(proxies={url: 1}), Accepted)
        peer.close()

    def wait_for(state: ServerState) -> None:
        until(f"it is {state}", lambda: server().condition.state is state, STATE_SECONDS)

    (works,) = {endpoint.url for endpoint in server().llm_servers}
    with Training(deployment.url):
        ask(f"http://127.0.0.1:{free_port()}")
        wait_for(ServerState.QUARANTINED)
        ask(works)
        wait_for(ServerState.SERVING)
        until("all its slots have jobs", lambda: server().busy_slots == 4, STATE_SECONDS)
        (run,) = client.status().runs
    assert run.counters.jobs_dead == 0
