"""Batches requested ahead, as a trainer asks for them: over the API's own service, both queues."""

import itertools
from collections.abc import Iterator

import pytest

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState, Wanted
from orchestrator.service import Orchestrator
from orchestrator.trainers import MAX_OUTSTANDING, Trainers
from rollyard.errors import Conflict, NotFound
from rollyard.http import Peer
from rollyard.messages import (
    NO_BOUND,
    AgentServer,
    Batch,
    BatchRequest,
    Job,
    Prediction,
    Prompt,
    RunSettings,
    RunStatus,
)
from rollyard.unpacking import unpacked
from tests.orchestrator.fake_agents import fake_agent
from tests.orchestrator.moves import completed, conclude, decide, leased, report
from tests.queue_fixtures import publish


@pytest.fixture
def max_staleness() -> int:
    return 1


@pytest.fixture
def trainers(orchestrator: Orchestrator, url: str, max_staleness: int) -> Iterator[Trainers]:
    """Of a Run of Groups of two, which one server with four Slots makes effective at once, with
    tokens of weight version 0."""
    settings = RunSettings(run_id="train", group_size=2, max_staleness=max_staleness)
    orchestrator.trainers.create_run(settings)
    with fake_agent(url, lambda job: float(job.member)):
        yield orchestrator.trainers


PROMPTS = (f"p{number}" for number in itertools.count())


def ask(trainers: Trainers, batch_id: str, size: int = 2, version: int | None = None) -> RunStatus:
    request = BatchRequest(batch_id=batch_id, requested_batch_size=size, weight_version=version)
    return trainers.request_batch("train", request)


def feed(trainers: Trainers, prompts: int) -> None:
    fed = itertools.islice(PROMPTS, prompts)
    trainers.feed(
        "train", [Prompt(prompt_id=name, instance={"data_source": "arithmetic"}) for name in fed]
    )


def ready(trainers: Trainers, batch_id: str) -> Batch:
    """The Batch, once it is complete; Prompts are fed as they are wanted."""
    for _ in range(200):
        status = trainers.run_status("train")
        if batch_id in status.batches_ready:
            return unpacked(trainers.fetch_batch("train", batch_id))
        if status.prompts_wanted:
            feed(trainers, status.prompts_wanted)
        trainers._queues.runs.wait_for_news("train", 0.1)
    pytest.fail(f"no {batch_id}: {trainers.run_status('train').waiting_for}")


def test_batches_are_sampled_in_the_order_they_were_requested(trainers: Trainers) -> None:
    ask(trainers, "first")
    status = ask(trainers, "second", size=3)
    assert (status.batch_id, status.batches) == ("first", ("first", "second"))
    first, second = ready(trainers, "first"), ready(trainers, "second")
    assert (len(first.groups), len(second.groups)) == (2, 3)
    assert not {g.group_id for g in first.groups} & {g.group_id for g in second.groups}
    status = trainers.run_status("train")
    assert status.batches_ready == ("first", "second")
    assert status.batch_ready
    assert (status.effective_groups, status.requested_batch_size) == (2, 2)


def test_batches_are_acknowledged_in_any_order(trainers: Trainers) -> None:
    ask(trainers, "first")
    ask(trainers, "second")
    before = ready(trainers, "first")
    ready(trainers, "second")
    trainers.acknowledge_batch("train", "second")
    assert unpacked(trainers.fetch_batch("train", "first")).groups == before.groups
    with pytest.raises(NotFound, match="was acknowledged"):
        trainers.fetch_batch("train", "second")
    trainers.acknowledge_batch("train", "first")
    assert trainers.run_status("train").batches == ()


def test_a_batch_more_than_staleness_allows_is_refused(trainers: Trainers) -> None:
    ask(trainers, "first")
    ask(trainers, "second")
    with pytest.raises(Conflict, match="at most 2 may be outstanding with max_staleness 1"):
        ask(trainers, "third")
    assert ask(trainers, "second").batches == ("first", "second")
    ready(trainers, "first")
    trainers.acknowledge_batch("train", "first")
    assert ask(trainers, "third").batches == ("second", "third")


def test_no_staleness_allows_more_batches_than_any_trainer_needs(
    orchestrator: Orchestrator,
) -> None:
    settings = RunSettings(run_id="train", group_size=2, max_staleness=NO_BOUND)
    orchestrator.trainers.create_run(settings)
    for number in range(MAX_OUTSTANDING):
        ask(orchestrator.trainers, f"b{number}")
    with pytest.raises(Conflict, match=f"at most {MAX_OUTSTANDING} may be outstanding"):
        ask(orchestrator.trainers, "one-more")


@pytest.mark.parametrize("max_staleness", [9])
def test_each_batch_updates_the_weights_after_those_of_the_one_before(trainers: Trainers) -> None:
    publish(trainers._queues, 3)
    ask(trainers, "first")
    ask(trainers, "second")
    assert ready(trainers, "first").report.weight_version == 3
    assert ready(trainers, "second").report.weight_version == 4
    publish(trainers._queues, 4)
    trainers.acknowledge_batch("train", "first")
    ask(trainers, "third")
    assert ready(trainers, "third").report.weight_version == 5


@pytest.mark.parametrize("max_staleness", [9])
def test_a_trainer_may_say_itself_what_a_batch_updates(trainers: Trainers) -> None:
    ask(trainers, "b", version=9)
    batch = ready(trainers, "b")
    assert batch.report.weight_version == 9
    assert trainers.run_status("train").last_report == batch.report
    trainers.acknowledge_batch("train", "b")
    assert trainers.run_status("train").last_report == batch.report


def test_the_sampler_hears_under_which_weights_each_running_job_began(
    patient_queues: Queues, server: AgentServer
) -> None:
    """Nobody collects here, so that the request stays to be read."""
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    queues.servers.register(server)
    publish(queues, 2)
    prompt = Prompt(prompt_id="p", instance={"data_source": "arithmetic"})
    queues.tasks.submit("train", [prompt])
    decide(queues, Open())
    leased(queues)
    publish(queues, 3)
    leased(queues)
    trainers = Trainers(queues)
    trainers._until = lambda *_: None  # type: ignore[method-assign]
    ask(trainers, "b", size=1)
    (event,) = queues.connection.ask(queues.events.oldest("train"))
    assert event == BatchRequested(
        batch_id="b",
        requested_batch_size=1,
        weight_version=3,
        begun={"train/p/0": 2, "train/p/1": 3},
    )


def test_prompts_of_which_the_sampler_has_not_heard_are_not_asked_for_again(
    patient_queues: Queues, server: AgentServer
) -> None:
    """With histories a Prompt has no Jobs until the sampler decides that it is worth it."""
    queues = patient_queues
    history = Prediction(skip_by_history=True)
    queues.runs.create(RunSettings(run_id="train", group_size=2, prediction=history))
    queues.servers.register(server)
    wanted = Wanted(batch_id="b", requested_batch_size=1, weight_version=0)
    conclude(queues, Open(), events=0, state=SamplerState(wanted=[wanted]))
    trainers = Trainers(queues)
    assert trainers.run_status("train").prompts_wanted == 2
    feed(trainers, 2)
    assert trainers.run_status("train").prompts_wanted == 0
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    assert trainers.run_status("train").counters.jobs_queued == 4


def test_no_prompts_are_asked_for_in_the_place_of_results_that_may_complete_the_batch(
    patient_queues: Queues, server: AgentServer
) -> None:
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2, look_ahead_jobs=2))
    queues.servers.register(server)
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=2))
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    trainers = Trainers(queues)
    assert trainers.run_status("train").prompts_wanted == 2
    feed(trainers, 2)
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    for _ in range(4):
        report(queues, completed(leased(queues)))  # the sampler has yet to hear of them
    assert trainers.run_status("train").prompts_wanted == 0
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    assert trainers.run_status("train").prompts_wanted == 2


def test_a_trainers_checkpoint_names_the_prompts_that_are_not_trained_on(
    trainers: Trainers, url: str
) -> None:
    """Over HTTP; those of a Batch that was acknowledged are gone."""
    peer = Peer(url, name="orchestrator")
    ask(trainers, "first")
    batch = ready(trainers, "first")
    held = set(peer.get("/runs/train/prompts", list[str]))
    assert {group.prompt.prompt_id for group in batch.groups} <= held
    trainers.acknowledge_batch("train", "first")
    left = set(peer.get("/runs/train/prompts", list[str]))
    assert left == held - {group.prompt.prompt_id for group in batch.groups}


def test_a_batch_asked_for_ahead_says_what_it_comes_after(
    orchestrator: Orchestrator, url: str
) -> None:
    orchestrator.trainers.create_run(RunSettings(run_id="train", group_size=2))

    def never(_: Job) -> None:
        return None

    with fake_agent(url, never):
        ask(orchestrator.trainers, "first")
        ask(orchestrator.trainers, "second")
        why = orchestrator.operators.why("second").reason
        assert why.startswith("it is sampled after batch 'first': the trainer's dataloader owes ")
