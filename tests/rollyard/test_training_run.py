"""Batches requested ahead are sampled while the trainer trains; none is lost, or comes twice."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rollyard import Batch, TrainingRun
from rollyard.errors import Conflict, InvalidMessage, PromptsExhausted, WeightMismatch
from rollyard.messages import RunSettings, RunStatus
from tests.rollyard.fake_orchestrator import OrchestratorForTrainers

HERE = threading.main_thread().name
AHEAD = "feed-run"


@pytest.fixture
def orchestrator() -> OrchestratorForTrainers:
    return OrchestratorForTrainers()


def rows() -> Iterator[dict[str, Any]]:
    return ({"data_source": "x", "row": number} for number in itertools.count())


def run_on(orchestrator: OrchestratorForTrainers, dataloader: Any = None) -> TrainingRun:
    settings = RunSettings(run_id="run", group_size=2)
    return TrainingRun(orchestrator.take_over(), settings, dataloader or rows())


def numbers(batch: Batch) -> list[int]:
    return [group.prompt.instance["row"] for group in batch.groups]


def test_a_batch_requested_ahead_is_sampled_while_the_trainer_trains(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    first = run.rollout(2)
    assert orchestrator.feeding_threads == {HERE}
    ahead = run.request(3)
    assert orchestrator.wait_for_batch(ahead)
    assert orchestrator.feeding_threads == {HERE, AHEAD}
    run.ack(first)
    second = run.rollout(3)
    assert second.batch_id == ahead
    assert [numbers(first), numbers(second)] == [[0, 1], [2, 3, 4]]


def test_batches_come_in_the_order_they_were_requested_and_are_acknowledged_in_any(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    asked = [run.request(2), run.request(2)]
    got = [run.rollout(2), run.rollout(2)]
    assert [batch.batch_id for batch in got] == asked
    for batch in reversed(got):
        run.ack(batch)
    assert numbers(run.rollout(1)) == [4]


def test_a_batch_is_returned_again_until_it_is_acknowledged(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    batch = run.rollout(2)
    assert run.rollout(2) == batch
    run.ack(batch)
    assert run.rollout(2) != batch


def test_batches_come_one_after_the_other_as_they_are_acknowledged(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    seen = []
    for batch in itertools.islice(run.batches(2), 3):
        seen.append(numbers(batch))
        run.ack(batch)
    assert seen == [[0, 1], [2, 3], [4, 5]]


class AcknowledgedMeanwhile(OrchestratorForTrainers):
    """Its next status for the trainer's thread is of just before another thread's `ack`."""

    meanwhile: Callable[[], object] | None = None

    def _wait(self, query: dict[str, list[str]]) -> RunStatus:
        status = super()._wait(query)
        if threading.current_thread().name == HERE and (acknowledge := self.meanwhile):
            self.meanwhile = None
            acknowledge()
        return status


def test_a_batch_may_be_acknowledged_while_another_thread_waits_for_the_next() -> None:
    orchestrator = AcknowledgedMeanwhile()
    run = run_on(orchestrator)
    first = run.rollout(2)
    second = run.request(2)
    assert orchestrator.wait_for_batch(second)
    orchestrator.meanwhile = lambda: run.ack(first)
    assert run.rollout(2).batch_id == second
    assert orchestrator.meanwhile is None


def test_what_the_dataloader_raises_meanwhile_the_next_rollout_raises(
    orchestrator: OrchestratorForTrainers,
) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield from itertools.islice(rows(), 1)
        raise OSError("the dataset is gone")

    run = run_on(orchestrator, failing())
    run.request(2)
    with pytest.raises(OSError, match="the dataset is gone"):
        run.rollout(2)
    with pytest.raises(PromptsExhausted, match="1 of 2"):
        run.rollout(2)


def test_a_dataloader_that_ends_while_the_trainer_trains_is_an_error_that_counts(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator, itertools.islice(rows(), 3))
    run.request(2)
    run.request(2)
    assert numbers(run.rollout(2)) == [0, 1]
    with pytest.raises(PromptsExhausted, match="1 of 2"):
        run.rollout(2)


def test_a_trainer_that_starts_again_gets_what_it_did_not_acknowledge_oldest_first(
    orchestrator: OrchestratorForTrainers,
) -> None:
    crashed = run_on(orchestrator)
    asked = [crashed.request(2), crashed.request(2)]
    assert orchestrator.wait_for_batch(asked[1])
    run = run_on(orchestrator)
    assert [run.rollout(2).batch_id, run.rollout(2).batch_id] == asked


def test_a_trainer_that_starts_again_takes_up_the_requests_of_its_last_process(
    orchestrator: OrchestratorForTrainers,
) -> None:
    crashed = run_on(orchestrator)
    asked = [crashed.request(2), crashed.request(2)]
    run = run_on(orchestrator)
    assert [run.request(2), run.request(2)] == asked
    with pytest.raises(Conflict, match="too many"):
        run.request(2)


def test_a_batch_taken_up_is_fed_while_the_trainer_trains_on_the_one_before(
    orchestrator: OrchestratorForTrainers,
) -> None:
    peer = orchestrator
    crashed = run_on(peer, itertools.islice(rows(), 2))
    first, second = crashed.request(2), crashed.request(2)
    assert peer.wait_for_batch(first)
    assert second not in peer.delivered
    run = run_on(peer)
    assert run.rollout(2).batch_id == first
    assert peer.wait_for_batch(second)


def test_a_finished_run_is_fed_no_more(orchestrator: OrchestratorForTrainers) -> None:
    run = run_on(orchestrator)
    run.request(10_000)
    run.finish()
    fed = len(orchestrator.fed)
    with pytest.raises(Conflict, match="the run is closed"):
        run.rollout(1)
    assert len(orchestrator.fed) == fed


def test_a_checkpoint_goes_on_in_a_new_run_with_what_is_not_trained_on(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    run.ack(run.rollout(2))
    run.rollout(3)
    state = run.state_dict()
    new = run_on(OrchestratorForTrainers())
    new.load_state_dict(state)
    assert numbers(new.rollout(5)) == [2, 3, 4, 5, 6]


def test_a_state_comes_before_the_first_batch(orchestrator: OrchestratorForTrainers) -> None:
    run = run_on(orchestrator)
    state = run.state_dict()
    run.rollout(1)
    with pytest.raises(Conflict, match="before the first request or rollout"):
        run.load_state_dict(state)


def test_what_is_no_state_is_refused(orchestrator: OrchestratorForTrainers) -> None:
    with pytest.raises(InvalidMessage, match="not the state of a training run"):
        run_on(orchestrator).load_state_dict({"step": 3})


def test_a_batch_with_tokens_newer_than_the_weights_it_updates_is_an_error_once(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    orchestrator.updates, orchestrator.served = 2, 6
    with pytest.raises(WeightMismatch, match=r"update weight version 2, and has .* 6"):
        run.rollout(2)
    assert numbers(run.rollout(2)) == [0, 1]


def test_tokens_as_new_as_the_weights_that_the_batch_updates_are_none(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run = run_on(orchestrator)
    orchestrator.updates = orchestrator.served = 6
    assert numbers(run.rollout(2)) == [0, 1]


def test_a_batch_that_an_earlier_process_requested_may_have_newer_tokens(
    orchestrator: OrchestratorForTrainers,
) -> None:
    run_on(orchestrator).request(2)
    run = run_on(orchestrator)
    orchestrator.updates, orchestrator.served = 2, 6
    assert numbers(run.rollout(2)) == [0, 1]
