"""One trainer drives a Run, over real HTTP: the last that took it over."""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.queues import Queues
from orchestrator.trainers import Trainers
from rollyard import Batch, Client, TrainingRun
from rollyard.errors import NotFound, RollyardError, TrainerReplaced
from rollyard.messages import JobState, RunSettings, Trainer, WeightUpdate
from tests.orchestrator.fake_agents import fake_agent
from tests.waiting import until


def rows() -> Iterator[dict[str, Any]]:
    return ({"data_source": "arithmetic", "number": number} for number in itertools.count())


def take_over(url: str, **settings: Any) -> TrainingRun:
    return Client(url, patience_seconds=2).run(rows(), run_id="train", group_size=2, **settings)


def fail_to_train(run: TrainingRun) -> None:
    with run:
        run.rollout(1)
        raise OSError("no disk")


@pytest.fixture
def elder_and_batch(url: str) -> Iterator[tuple[TrainingRun, Batch]]:
    """A trainer that has a Batch, after which another trainer took its Run over."""
    with fake_agent(url, lambda job: float(job.member % 2)):
        elder = take_over(url)
        batch = elder.rollout(2)
        take_over(url)
        yield elder, batch


@pytest.mark.parametrize(
    "call",
    [
        lambda run, batch: run.rollout(2),
        lambda run, batch: run.request(2),
        lambda run, batch: run.ack(batch),
        lambda run, batch: run.finish(),
        lambda run, batch: run.leave(),
        lambda run, batch: run.status(),
        lambda run, batch: run.state_dict(),
        lambda run, batch: run.update_weights("/checkpoint", version=1),
        lambda run, batch: run.weights_updated(version=1),
    ],
    ids=[
        *("rollout", "request", "ack", "finish", "leave", "status", "state_dict"),
        *("update_weights", "weights_updated"),
    ],
)
def test_an_elder_trainer_is_told_who_drives_its_run_since_when(
    url: str,
    elder_and_batch: tuple[TrainingRun, Batch],
    call: Callable[[TrainingRun, Batch], object],
) -> None:
    elder, batch = elder_and_batch
    with pytest.raises(TrainerReplaced, match=rf"taken over at .* UTC by .* pid {os.getpid()}"):
        call(elder, batch)
    (seen_by_people,) = Client(url).status().runs
    assert seen_by_people.batches == (batch.batch_id,)


def test_what_an_elder_trainer_publishes_is_not_written_down(patient_queues: Queues) -> None:
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    elder, newer = (
        queues.epochs.claim("train", Trainer(trainer_id=name, host="node-1", pid=11))
        for name in ("elder", "newer")
    )
    queues.weights.publish(WeightUpdate(path="/newer", version=1), "train", epoch=newer)
    with pytest.raises(TrainerReplaced, match="run 'train' was taken over"):
        queues.weights.publish(WeightUpdate(path="/elder", version=2), "train", epoch=elder)
    with pytest.raises(NotFound, match="there is no run 'other'"):
        queues.weights.publish(WeightUpdate(path="/other", version=2), "other", epoch=newer)
    assert queues.weights.version() == 1
    queues.weights.publish(WeightUpdate(path="/operator", version=2))
    assert queues.weights.version() == 2


def test_an_elder_trainer_fetches_no_batch(patient_queues: Queues) -> None:
    patient_queues.runs.create(RunSettings(run_id="train", group_size=2))
    elder, _ = (
        patient_queues.epochs.claim("train", Trainer(trainer_id=name, host="node-1", pid=11))
        for name in ("elder", "newer")
    )
    with pytest.raises(TrainerReplaced, match="run 'train' was taken over"):
        Trainers(patient_queues).fetch_batch("train", "b", epoch=elder)


def test_a_run_that_nobody_drives_is_not_said_to_be_absent(patient_queues: Queues) -> None:
    patient_queues.runs.create(RunSettings(run_id="train", group_size=2))
    with pytest.raises(TrainerReplaced, match="no trainer drives run 'train'"):
        patient_queues.epochs.heard("train", 1, leaving=False)
    with pytest.raises(NotFound, match="there is no run 'other'"):
        patient_queues.epochs.heard("other", 1, leaving=False)


def test_what_the_elder_has_not_acknowledged_is_the_new_trainers(url: str) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        batch = take_over(url).rollout(2)
        run = take_over(url)
        again = run.rollout(2)
        assert again.groups == batch.groups
        run.ack(again)
        assert run.rollout(2).batch_id != batch.batch_id


def test_a_trainer_that_waits_for_a_batch_is_told_while_it_waits(url: str) -> None:
    with fake_agent(url, lambda job: None) as agent, ThreadPoolExecutor(1) as thread:
        elder = take_over(url)
        waiting = thread.submit(elder.rollout, 1)
        until("the job runs", lambda: agent.running)
        take_over(url)
        with pytest.raises(TrainerReplaced):
            waiting.result(timeout=60)


def test_leaving_a_run_gives_its_slots_up_and_keeps_what_it_has(
    url: str, patient_queues: Queues
) -> None:
    with fake_agent(url, lambda job: None if job.prompt.instance["number"] else job.member % 2):
        with take_over(url, look_ahead_jobs=4) as run:
            batch = run.rollout(1)
        until("no job is parked", lambda: not run.status().counters.jobs_parked)
        counters = run.status().counters
        assert counters.jobs_queued == counters.jobs_submitted - counters.jobs_accepted > 0
        assert patient_queues.jobs.records("train", JobState.LEASED, 9) == []
        assert take_over(url, look_ahead_jobs=4).rollout(1).groups == batch.groups


def test_an_error_leaves_the_run_to_the_trainer_that_starts_again(url: str) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        batch = take_over(url).rollout(1)
        with pytest.raises(OSError, match="no disk"):
            fail_to_train(take_over(url))
        assert take_over(url).rollout(1).groups == batch.groups


def test_a_finished_run_may_be_left(url: str) -> None:
    with take_over(url) as run:
        run.finish()
    with pytest.raises(RollyardError, match="closed"):
        take_over(url).request(1)
