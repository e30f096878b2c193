"""A row that fails wherever it runs is its own fault: the queues promise it, a trainer is told."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from orchestrator.collector import Collector
from orchestrator.demand import prompts_to_feed
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.servers import Offer
from orchestrator.sampling.decisions import Open
from orchestrator.trainers import Trainers
from rollyard import Client, TrainingRun
from rollyard.errors import RunFailing
from rollyard.messages import (
    AgentServer,
    AttemptOutcome,
    Blame,
    Job,
    Lease,
    Outcome,
    Prompt,
    Receipt,
    Result,
    RunSettings,
    ServerState,
)
from tests.orchestrator.fake_agents import fake_agent
from tests.orchestrator.moves import assert_conserved, completed, conditions, decide, leased, report
from tests.waiting import until

MakePrompt = Callable[[str], Prompt]


@pytest.fixture
def queues(
    patient_queues: Queues, settings: RunSettings, server: AgentServer, prompt: MakePrompt
) -> Queues:
    """An open Run of one Job a Group, and a server with two Slots."""
    queues = patient_queues
    queues.runs.create(msgspec.structs.replace(settings, group_size=1, criterion="complete"))
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt(f"p{number}") for number in range(6)])
    decide(queues, Open())
    return queues


def row_failed(lease: Lease) -> Result:
    error = "KeyError in init: 'question'"
    return Result(lease=lease, outcome=Outcome.INFRA_FAILED, error=error, blame=Blame.ROW)


def test_a_job_whose_row_fails_is_tried_twice(queues: Queues) -> None:
    lease = leased(queues)
    assert report(queues, row_failed(lease)).receipt is Receipt.REQUEUED
    again = leased(queues)
    assert (again.job_id, again.attempt) == (lease.job_id, 2)
    assert report(queues, row_failed(again)).receipt is Receipt.DEAD
    assert_conserved(queues)
    (dead,) = queues.jobs.dead("train")
    assert dead.reason == "KeyError in init: 'question'"
    assert {each.outcome for each in dead.attempts} == {AttemptOutcome.ROW_FAILED}


def test_the_second_try_is_another_servers_where_there_is_one(
    queues: Queues, server: AgentServer
) -> None:
    lease = leased(queues)
    report(queues, row_failed(lease))
    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1"))
    tried = {each.lease.job_id: each.lease.server_id for each in queues.leases.lease(4)}
    assert tried[lease.job_id] == "agent-1"


def test_rows_that_fail_are_not_held_against_their_server(queues: Queues) -> None:
    for _ in range(12):
        report(queues, row_failed(leased(queues)))
    condition = conditions(queues)["agent-0"]
    assert (condition.state, condition.failing_jobs) == (ServerState.SERVING, ())
    assert queues.runs.read("train").counters.jobs_dead == 6


def test_a_run_whose_groups_die_asks_for_no_more_prompts(queues: Queues) -> None:
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    collector = Collector(queues.events, queues.runs, lambda moved: None)
    collector.collect("train")
    for _ in range(12):
        report(queues, row_failed(leased(queues)))
    collector.collect("train")
    assert queues.runs.read("train").counters.jobs_queued == 0
    assert (
        prompts_to_feed(
            queues.runs.read("train"),
            Offer(free={"agent-0": 2}, classes={"agent-0": "all"}, slots=2),
        )
        == 0
    )


def test_a_row_that_failed_once_may_succeed(queues: Queues) -> None:
    report(queues, row_failed(leased(queues)))
    assert report(queues, completed(leased(queues))).receipt is Receipt.ACCEPTED


# What the trainer is told


def rows(good: Callable[[int], bool]) -> Iterator[dict[str, Any]]:
    return (
        {"data_source": "arithmetic", "number": number, "good": good(number)}
        for number in itertools.count()
    )


def run_on(url: str, good: Callable[[int], bool]) -> TrainingRun:
    return Client(url).run(rows(good), run_id="train", group_size=2)


@pytest.fixture
def agent(url: str) -> Iterator[None]:
    """An agent server on which rows that are not good fail."""

    def judge(job: Any) -> float:
        if not job.prompt.instance["good"]:
            raise KeyError("question")
        return float(job.member % 2)

    with fake_agent(url, judge, slots=4):
        yield


@pytest.mark.usefixtures("agent")
def test_a_dataset_of_rows_that_all_fail_is_an_error_that_names_cause_and_prompts(
    url: str,
) -> None:
    run = run_on(url, lambda number: False)
    with pytest.raises(RunFailing, match=r"groups died .*'question'.*prompts: \w+-0000") as told:
        run.rollout(2)
    assert "call rollout again" in told.value.fix
    status = run.status()
    assert status.prompts_wanted == 0
    assert status.waiting_for.startswith("no more prompts are wanted until the trainer goes on")


@pytest.mark.usefixtures("agent")
def test_a_trainer_that_was_told_goes_on_with_the_next_rollout(url: str) -> None:
    corrected: list[bool] = []
    run = run_on(url, lambda number: bool(corrected))
    with pytest.raises(RunFailing):
        run.rollout(2)
    corrected.append(True)
    assert len(run.rollout(2).groups) == 2


def test_a_run_that_goes_on_is_told_from_one_whose_next_groups_die_at_once(queues: Queues) -> None:
    def die() -> None:
        for _ in range(2):
            report(queues, row_failed(leased(queues)))

    collector = Collector(queues.events, queues.runs, lambda _: None)
    die()
    collector.collect("train")
    assert queues.runs.read("train").state.dead_in_a_row == 1
    with ThreadPoolExecutor(1) as caller:
        going_on = caller.submit(Trainers(queues).retry_run, "train")
        until("the run is told", lambda: queues.runs.read("train").events_waiting > 0)
        die()
        collector.collect("train")
        assert going_on.result(timeout=10).run_id == "train"
    assert queues.runs.read("train").state.dead_in_a_row == 1


def test_a_run_that_is_closed_meanwhile_is_not_waited_for(queues: Queues) -> None:
    for _ in range(2):
        report(queues, row_failed(leased(queues)))
    deaths = queues.runs.read("train").events_waiting
    with ThreadPoolExecutor(1) as caller:
        going_on = caller.submit(Trainers(queues).retry_run, "train")
        until("the run is told", lambda: queues.runs.read("train").events_waiting > deaths)
        queues.events.close("train")  # in the place of all that it was told
        Collector(queues.events, queues.runs, lambda _: None).collect("train")
        assert going_on.result(timeout=10).run_id == "train"


@pytest.mark.usefixtures("agent")
def test_a_trainer_that_starts_again_goes_on_too(url: str) -> None:
    with pytest.raises(RunFailing):
        run_on(url, lambda number: False).rollout(2)
    assert len(run_on(url, lambda number: True).rollout(2).groups) == 2


@pytest.mark.usefixtures("agent")
def test_what_fails_ahead_the_next_rollout_raises(url: str) -> None:
    run = run_on(url, lambda number: number < 2)
    run.request(1)
    run.request(2)
    assert len(run.rollout(1).groups) == 1
    with pytest.raises(RunFailing):
        run.rollout(2)


@pytest.mark.usefixtures("agent")
def test_some_rows_that_fail_among_others_are_left_out(url: str) -> None:
    run = run_on(url, lambda number: number % 3 != 0)
    batch = run.rollout(6)
    assert all(group.prompt.instance["good"] for group in batch.groups)
    assert run.status().counters.groups_dead >= 1


def test_a_few_rows_that_die_at_once_prove_nothing_while_others_still_run(
    url: str, patient_queues: Queues
) -> None:
    """The first rows fail in no time; those beside them take as long as they like."""

    def judge(job: Job) -> float | None:
        if not job.prompt.instance["good"]:
            raise KeyError("question")
        return None

    with fake_agent(url, judge, slots=24) as agent:
        run = run_on(url, lambda number: number not in (1, 3, 5, 7))
        run.request(2)
        until("all slots run", lambda: len(agent.running) == 24)
        until("four groups died", lambda: run.status().counters.groups_dead == 4)
        assert run.status().failing is None
        assert "4 groups died since a job last succeeded" in run.status().waiting_for
