"""Fault 28 of the fault catalogue in docs/reliability.md: a trainer is gone for good while its Jobs
are parked on every Slot, and another Run waits for one.
"""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from chaos import work
from rollyard import Client, Criterion
from rollyard.messages import AttemptOutcome, JobState
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment
from tests.waiting import until

ABANDONED, OTHER = "abandoned", "other"
PROMISED_SECONDS = 10.0
"""From the death of one trainer until the other's Run has Slots."""


@contextmanager
def trainer_that_trains(deployment: FaultDeployment) -> Iterator["subprocess.Popen[bytes]"]:
    """Its Jobs are parked, and keep every Slot."""
    command = [sys.executable, "-m", "tests.faults.training_trainer"]
    trainer = subprocess.Popen(
        [*command, deployment.cluster.door_url, ABANDONED, str(deployment.gate)],
        stdout=subprocess.PIPE,
    )
    try:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"trains\n"
        until("all slots are of parked jobs", lambda: all_parked(deployment))
        yield trainer
    finally:
        trainer.kill()
        trainer.communicate()


def all_parked(deployment: FaultDeployment) -> bool:
    counters = deployment.counters(ABANDONED)
    slots = deployment.settings.agent_servers * deployment.settings.slots
    return counters.jobs_parked == counters.jobs_leased >= slots


def test_the_slots_of_a_run_that_nobody_drives_go_to_another_that_waits(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=2)
    deployment.start()
    rows = ({"data_source": work.DATA_SOURCE, "number": number} for number in itertools.count())
    with trainer_that_trains(deployment) as trainer, Client(deployment.cluster.door_url) as client:
        other = client.run(rows, run_id=OTHER, group_size=1, criterion=Criterion.COMPLETE)
        other.request(8)
        until("the other run waits", lambda: deployment.counters(OTHER).jobs_queued)
        trainer.kill()
        until("it gets slots", lambda: deployment.accepted(OTHER), PROMISED_SECONDS)
        assert len(other.rollout(8).groups) == 8
        counters = deployment.counters(ABANDONED)
        assert counters.jobs_parked == counters.attempts_failed == counters.jobs_dead == 0
        assert counters.jobs_queued == counters.jobs_submitted - counters.jobs_accepted
        (job, *_) = deployment.jobs(ABANDONED, JobState.QUEUED)
        (attempt,) = job.attempts
        assert attempt.outcome is AttemptOutcome.STOPPED
        assert "its trainer was not heard of for" in attempt.reason
        assert "run other waited for a slot" in attempt.reason
