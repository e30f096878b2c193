"""The contract of all adapters to trainers: each sentence holds for every one of them."""

import itertools
import os
import random
from collections import deque
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from rollyard import backoff
from rollyard.errors import Conflict, OrchestratorUnavailable, PromptsExhausted, WeightMismatch
from tests.trainers.clock import Clock
from tests.trainers.contract import GROUPS, Adapter, TrainedRow, all_adapters
from tests.trainers.orchestrator import FIRST_VERSION, Orchestrator
from tests.trainers.process import Killed, Moment, Process
from tests.trainers.system_process import KilledAfter, run_system_process
from tests.trainers.training import STEPS, Training, matched, rows

SEED = int(os.environ.get("ROLLYARD_TRAINERS_SEED", "1"))
KILLS, MOST_TRAININGS = 20, 24
SYSTEM_KILLS = 4
"""By SIGKILL."""


@pytest.fixture(scope="module", params=all_adapters(), ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
def training(adapter: Adapter, tmp_path: Path, policy_dir: Path) -> Training:
    return Training(adapter, Orchestrator(), tmp_path, policy_dir)


@pytest.fixture(scope="module")
def whole(adapter: Adapter, tmp_path_factory: pytest.TempPathFactory, policy_dir: Path) -> Training:
    """A training that nothing has disturbed."""
    directory = tmp_path_factory.mktemp(adapter.name)
    training = Training(adapter, Orchestrator(), directory, policy_dir)
    training.run_process()
    return training


def test_each_step_is_on_one_batch_and_on_each_of_its_sequences_once(whole: Training) -> None:
    assert len(whole.pairs()) == whole.rows * 4
    assert whole.dataset_rows() == list(range(whole.rows))


def test_a_batch_is_acknowledged_once_it_is_trained_on_and_its_weights_are_published(
    whole: Training,
) -> None:
    assert not whole.orchestrator.runs["run"].delivered
    published = whole.orchestrator.versions[1:]
    assert published == list(range(FIRST_VERSION + 1, FIRST_VERSION + STEPS + 2))


def test_what_the_policy_has_sampled_is_trained_on_and_nothing_else(whole: Training) -> None:
    for sampled, row in whole.pairs():
        assert list(row.loss_mask) == [
            each == 1 for each in sampled.tokens.loss_mask[: len(row.loss_mask)]
        ]


def test_its_fields_are_those_that_it_has_a_place_for(whole: Training) -> None:
    optional = {each.name for each in fields(TrainedRow)} - {"token_ids", "loss_mask"}
    for row in (row for trained in whole.trained for row in trained):
        missing = {name for name in optional if getattr(row, name) is None}
        assert missing == whole.adapter.without


def test_a_token_has_the_logprob_of_those_that_sampled_it(whole: Training) -> None:
    for sampled, row in whole.pairs():
        if row.logprobs is not None:
            mask = np.array(row.loss_mask)
            trained = np.array(row.logprobs, np.float32)[mask]
            assert np.array_equal(trained, np.array(sampled.tokens.logprobs)[: len(mask)][mask])


def test_a_token_has_the_version_of_the_weights_that_sampled_it(whole: Training) -> None:
    for sampled, row in whole.pairs():
        if row.weight_versions is not None:
            for span in sampled.tokens.weight_spans:
                assert set(row.weight_versions[span.start : span.end]) == {span.version}
    spans = [span for sampled, _ in whole.pairs() for span in sampled.tokens.weight_spans]
    assert len({span.version for span in spans}) > 1


def test_a_sequence_has_the_reward_of_its_trajectory(whole: Training) -> None:
    for sampled, row in whole.pairs():
        assert row.reward is None or row.reward == pytest.approx(sampled.result.reward)


def test_members_of_a_group_stay_together_and_apart_from_others(whole: Training) -> None:
    assert not {"group", "advantage"} <= whole.adapter.without
    for trained, batch in zip(whole.trained, whole.batches(), strict=True):
        pairs = matched(whole.adapter, batch, trained)
        named = {(sampled.group, row.group) for sampled, row in pairs if row.group is not None}
        assert "group" in whole.adapter.without or len(named) == GROUPS
        assert len({group for _, group in named}) == len(named)


def test_advantages_are_of_rewards_beside_those_of_the_same_group(whole: Training) -> None:
    for batch in whole.batches():
        trained = whole.trained[whole.batches().index(batch)]
        pairs = matched(whole.adapter, batch, trained)
        for group in batch.groups:
            members = [
                (s.result.reward, row.advantage) for s, row in pairs if s.group == group.group_id
            ]
            advantages = [advantage for _, advantage in sorted(members) if advantage is not None]
            assert advantages == sorted(advantages)
            assert sum(advantages) == pytest.approx(0.0, abs=1e-4)
            assert not advantages or advantages[-1] > 0.1


def test_of_a_trajectory_that_its_template_splits_every_sequence_has_its_advantage(
    training: Training,
) -> None:
    training.orchestrator.kinds.split = True
    training.run_process()
    pairs = training.pairs()
    sequences = 1 if training.adapter.last_sequence_alone else 2
    split = [(s, row) for s, row in pairs if s.result.trajectory and s.result.trajectory.earlier]
    assert len(split) == sequences * training.rows
    for job_id in {sampled.result.lease.job_id for sampled, _ in split}:
        together = {row.advantage for s, row in split if s.result.lease.job_id == job_id}
        assert len(together) == 1


def test_a_trajectory_without_a_sampled_token_trains_nothing_and_counts_in_its_group(
    training: Training,
) -> None:
    training.orchestrator.kinds.empty = True
    training.run_process()
    empty = [row for sampled, row in training.pairs() if not sampled.tokens.turns]
    assert len(empty) == training.rows
    assert not any(any(row.loss_mask) for row in empty)
    assert np.isfinite(training.weights).all()


def test_a_trajectory_that_a_limit_ended_is_trained_on_as_others_are(training: Training) -> None:
    training.orchestrator.kinds.truncated = True
    training.run_process()
    for sampled, row in training.pairs():
        assert sum(row.loss_mask) == sum(sampled.tokens.loss_mask)


def test_a_batch_that_was_received_and_not_acknowledged_comes_again_and_is_trained_on_once(
    training: Training,
) -> None:
    with pytest.raises(Killed):
        training.run_process(("after get batch", 1))
    run = training.orchestrator.runs["run"]
    received = run.fetched[-1]
    assert received not in run.acknowledged
    training.run_process()
    assert run.fetched.count(received) == 2
    assert run.acknowledged.count(received) == 1
    training.pairs()
    assert training.dataset_rows() == list(range(training.rows))


def test_a_batch_with_tokens_that_are_too_old_is_refused_and_stays(training: Training) -> None:
    training.orchestrator.kinds.stale = True
    allowed = training.adapter.max_staleness
    with pytest.raises(WeightMismatch, match=f"max_staleness is {allowed}"):
        training.run_process()
    assert not training.trained
    assert not training.orchestrator.runs["run"].acknowledged


@pytest.mark.parametrize(
    "adapter",
    [each for each in all_adapters() if not each.any_batch_size],
    ids=lambda adapter: adapter.name,
    indirect=True,
)
def test_a_batch_of_another_size_is_refused_and_none_is_requested_beside_it(
    training: Training,
) -> None:
    """Whoever goes on with the size of before would be refused that one."""
    training.request("before", GROUPS + 1)
    with pytest.raises(Conflict, match=f"takes {GROUPS} groups, .* requested with {GROUPS + 1}"):
        training.run_process()
    assert not training.trained
    assert list(training.orchestrator.runs["run"].updated) == ["before"]


def test_an_evaluation_trains_nothing(training: Training) -> None:
    process = Process(training.directory)
    made = process.trainer(
        training.adapter, training.orchestrator, rows(6), training.policy_dir, steps=STEPS
    )
    with made as trainer:
        first = trainer.evaluate(rows(4, first=100))
        own = training.orchestrator.runs["run"]
        assert (own.fed, own.updated) == ({}, {})
        trainer.train()
        before = list(trainer.weights()), [*own.acknowledged], [*training.orchestrator.versions]
        assert trainer.evaluate(rows(4, first=100)) == first
        after = list(trainer.weights()), own.acknowledged, training.orchestrator.versions
    assert before == after
    assert len(process.steps) == len(own.acknowledged) == STEPS
    evaluations = [run for run in training.orchestrator.runs.values() if run is not own]
    assert all(each.closed for each in evaluations)
    fed = [prompt.instance["row"] for each in evaluations for prompt in each.fed.values()]
    assert sorted(fed) == sorted([100, 101, 102, 103] * 2)
    groups = [g for each in evaluations for batch in each.sampled.values() for g in batch.groups]
    rewards = [result.reward or 0.0 for group in groups for result in group.results]
    assert first == pytest.approx(np.mean(rewards))


def test_a_dataloader_that_ends_is_an_error_that_counts_and_loses_no_row(
    training: Training,
) -> None:
    training.rows -= 1
    with pytest.raises(PromptsExhausted, match=f"1 of {GROUPS} effective groups"):
        training.run_process()
    assert len(training.trained) == len(training.batches()) == STEPS - 1
    training.rows += 1
    training.run_process()
    assert training.dataset_rows() == list(range(training.rows))


def test_a_row_may_hold_what_json_has_no_form_for(training: Training) -> None:
    training.columns = {"image": b"\x89PNG", "at": datetime(2026, 1, 1, tzinfo=UTC)}
    with pytest.raises(Killed):
        training.run_process(("after step", 1))
    training.run_process()
    assert training.dataset_rows() == list(range(training.rows))
    prompts = training.orchestrator.runs["run"].fed.values()
    assert all(training.columns.items() <= prompt.instance.items() for prompt in prompts)


CALLS = ("post request", "get batch", "post publish", "get prompts", "post ack")
"""Of a training: each is tried while the orchestrator is away."""


@pytest.mark.parametrize("lost", ["before", "after"])
def test_an_orchestrator_that_is_away_for_a_minute_is_waited_for(
    training: Training, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(backoff, "time", clock)
    back: dict[str, float] = {}

    def away(moment: str) -> bool:
        """From the first of each kind of call on, for a minute less the last attempt's second."""
        when, _, call = moment.partition(" ")
        return when == lost and call in CALLS and clock.now < back.setdefault(call, clock.now + 59)

    training.run_process(fails=away, clock=clock)
    assert set(back) == set(CALLS)
    assert clock.now > len(CALLS) * 59
    training.pairs()
    assert training.dataset_rows() == list(range(training.rows))


@pytest.mark.parametrize("call", CALLS)
def test_an_orchestrator_that_stays_away_is_an_error_and_the_next_process_goes_on(
    training: Training, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(backoff, "time", clock)
    moments = itertools.count()
    with pytest.raises(OrchestratorUnavailable, match=call):
        training.run_process(
            fails=lambda moment: moment == f"before {call}" and next(moments) > 0, clock=clock
        )
    training.run_process()
    training.pairs()
    assert training.dataset_rows() == list(range(training.rows))


def test_a_trainer_that_is_killed_wherever_it_is_trains_on_each_row_once(
    whole: Training, tmp_path: Path
) -> None:
    seeded = random.Random(SEED)
    counted = whole.process.moments
    left = deque(seeded.sample(sorted(counted), len(counted)))
    deaths: list[Moment] = []
    for number in range(MOST_TRAININGS):
        training = whole.another(tmp_path / str(number))
        for nth in range(min(3, len(left))):
            # What the first process leaves to do, the next ones begin with.
            kind = left.popleft()
            moment = kind, seeded.randrange(-(-counted[kind] * 2 // 3)) if nth == 0 else 0
            print(f"seed {SEED}: training {number} is killed {moment}")
            with suppress(Killed):
                training.run_process(moment)
            if training.process.dead:
                deaths.append(moment)
            else:
                left.append(kind)
        training.run_process()
        training.equals(whole)
        if not left:
            break
    assert len(deaths) >= KILLS
    # Some calls a thread of the Run may have made in the trainer's place.
    assert len(left) < len(counted) / 4, left


@pytest.mark.parametrize(
    "adapter",
    [each for each in all_adapters() if each.in_a_process],
    ids=lambda adapter: adapter.name,
    indirect=True,
)
def test_a_process_that_the_system_kills_loses_no_row_and_repeats_none(
    whole: Training, tmp_path: Path
) -> None:
    seeded = random.Random(SEED)
    deaths = 0
    for number in itertools.count():
        training = whole.another(tmp_path / str(number))
        for _ in range(2):
            kill = KilledAfter(seeded.randint(1, 30), seeded.uniform(0.0, 0.1))
            print(f"seed {SEED}: training {number} is killed {kill}")
            deaths += run_system_process(training, kill)
        run_system_process(training)
        training.equals(whole)
        if deaths >= SYSTEM_KILLS:
            break
