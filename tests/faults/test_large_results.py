"""Fault 18 of the fault catalogue in docs/reliability.md: a payload beyond the limit of 64 MiB.

It is refused with 413, before it is read or at the limit if it came without a length, in less
memory than twice the limit. A Result that never fits is its Job's end, with that reason.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
import requests

from chaos import work
from rollyard import Client, Criterion, codec
from rollyard.api import OrchestratorAPI
from rollyard.errors import PromptsExhausted
from serving.bodies import MAX_BODY_BYTES
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment

BYTES_OF_A_TOKEN = 9
"""Its id, its logprob and its place in the mask."""
MAX_FAILURES = 3
PIECE = b"x" * 2**20
PIECES = MAX_BODY_BYTES // len(PIECE) + 1
LOOK_SECONDS = 0.002
"""Between two looks at the memory."""


class Peak:
    max_bytes = 0


@contextmanager
def watched(pid: int) -> Iterator[Peak]:
    """The most resident memory that one process of the service has meanwhile."""
    family = [psutil.Process(pid), *psutil.Process(pid).children()]
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            peak.max_bytes = max(peak.max_bytes, *(process.memory_info().rss for process in family))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def post_results(deployment: FaultDeployment, body: bytes | Iterator[bytes]) -> requests.Response:
    headers = {"Content-Type": codec.MSGPACK}
    url = f"{deployment.cluster.door_url}/results?more=true"
    return requests.post(url, data=body, headers=headers, timeout=60)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_payload_beyond_the_limit_is_refused_in_less_than_twice_its_memory(
    make_deployment: MakeDeployment, chunked: bool
) -> None:
    deployment = make_deployment(agent_servers=0)
    deployment.start_services()
    with watched(deployment.cluster.service("orchestrator-0").process.pid) as peak:
        for _ in range(3):
            body = (PIECE for _ in range(PIECES)) if chunked else PIECE * PIECES
            answer = post_results(deployment, body)
            assert (answer.status_code, answer.json()["code"]) == (413, "TooLarge")
    assert peak.max_bytes < 2 * MAX_BODY_BYTES
    if not chunked:
        assert peak.max_bytes < MAX_BODY_BYTES, "it was read before it was refused"


def test_a_job_whose_result_is_too_large_is_dead_with_that_reason(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=1)
    deployment.start()
    client = Client(deployment.cluster.door_url)
    rows = [{"data_source": work.DATA_SOURCE, "number": number} for number in range(4)]
    rows[2]["tokens"] = MAX_BODY_BYTES // BYTES_OF_A_TOKEN + 1
    run = client.run(
        rows,
        run_id="train",
        group_size=1,
        criterion=Criterion.COMPLETE,
        max_infra_failures=MAX_FAILURES,
    )
    with pytest.raises(PromptsExhausted, match="3 of 4"):
        run.rollout(4, timeout_seconds=60)
    (dead,) = OrchestratorAPI(deployment.cluster.door_url).dead().jobs
    assert dead.prompt.instance["number"] == 2
    assert "the body is larger than the 64 MiB that orchestrator takes" in dead.reason
    assert [attempt.outcome for attempt in dead.attempts] == ["failed"] * MAX_FAILURES
    assert run.status().counters.jobs_accepted == 3
