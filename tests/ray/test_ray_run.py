"""A fleet as `rollyard ray` runs it, from its plan to its end, on machines that are threads."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ray.job import ADDRESSES, GONE_SECONDS, RayJob

pytestmark = pytest.mark.timeout(600)

REHEARSAL = (sys.executable, "-m", "tests.ray.rehearsal")
AGENTS = {f"agent-{address}" for address in ADDRESSES}


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[[bool], RayJob]]:
    """Launches the fleet, with a trainer or without."""
    jobs: list[RayJob] = []

    def launch(trains: bool) -> RayJob:
        jobs.append(RayJob(tmp_path, REHEARSAL, {}, trains=trains))
        return jobs[-1]

    yield launch
    for job in jobs:
        job.end()
        job.assert_nothing_is_left()


def test_a_trainer_gets_its_groups_and_a_node_that_ends_starts_again(
    launched: Callable[[bool], RayJob],
) -> None:
    job = launched(True)
    first = job.wait_for_batch_of("all machines have a part in a batch", AGENTS)
    assert len(first["prompts"]) == 16
    assert f"export ROLLYARD_URL=http://{ADDRESSES[1]}:{job.port}" in job.log()  # a GPU node
    job.node(ADDRESSES[0]).kill()
    job.wait_for("its end is noticed", f"{ADDRESSES[0]} was killed by SIGKILL; it starts again")
    job.wait_for_batch_of("it has a part again", AGENTS)
    (job.trainer / "enough").touch()
    assert job.process.wait(GONE_SECONDS) == 0
    job.assert_nothing_is_left()


def test_without_a_trainer_it_serves_until_it_is_stopped(
    launched: Callable[[bool], RayJob],
) -> None:
    job = launched(False)
    job.wait_for("it serves", "all 3 nodes are ready")
    doors = "+".join(
        f"http://{address}:{job.port + 1}" for address in (*ADDRESSES[1:], ADDRESSES[0])
    )
    assert f"export PRORL_SERVER_URLS={doors}" in job.log()
    assert f"export ROLLYARD_TOKEN_FILE={job.directory}/tokens" in job.log()
    job.end(signal.SIGTERM)
    assert job.process.returncode == 130
    job.assert_nothing_is_left()


def test_what_launched_it_may_be_killed(launched: Callable[[bool], RayJob]) -> None:
    job = launched(False)
    job.wait_for("it serves", "all 3 nodes are ready")
    job.end(signal.SIGKILL)
    job.assert_nothing_is_left()
