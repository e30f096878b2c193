"""A trainer's Client against the orchestrator over real HTTP, with quick fake agents."""

import itertools
import math
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from launch.free_ports import free_port
from orchestrator.app import create_app
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from rollyard import Client, Criterion, codec
from rollyard.api import OrchestratorAPI, RunAPI
from rollyard.errors import (
    AgentUnreachable,
    Conflict,
    DeadlineExceeded,
    InvalidMessage,
    LLMUnavailable,
    NotFound,
    OrchestratorUnavailable,
    PromptsExhausted,
    StaleAttempt,
)
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    Batch,
    Group,
    Job,
    Lease,
    Outcome,
    Prompt,
    Reported,
    Result,
    RunStatus,
)
from rollyard.messages.run import MAX_NESTED
from tests.orchestrator.fake_agents import fake_agent
from tests.queue_fixtures import QueueMaker
from tests.serving_threads import served
from tests.waiting import until


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    return patient_queues


def rows(source: str = "arithmetic") -> Iterator[dict[str, Any]]:
    return ({"data_source": source, "number": number} for number in itertools.count())


def every_third_is_hopeless(job: Job) -> float:
    return 0.0 if job.prompt.instance["number"] % 3 == 0 else float(job.member % 2)


def test_every_batch_has_exactly_the_requested_effective_groups(url: str, client: Client) -> None:
    with fake_agent(url, every_third_is_hopeless):
        run = client.run(rows(), run_id="train", group_size=4)
        for _ in range(5):
            batch = run.rollout(requested_batch_size=3)
            assert len(batch.groups) == 3
            for group in batch.groups:
                assert [result.reward for result in group.results] == [0.0, 1.0, 0.0, 1.0]
                assert group.prompt.instance["number"] % 3 != 0
            run.ack(batch)
    counters = run.status().counters
    assert counters.groups_kept >= 15
    assert counters.groups_filtered >= 5


def test_prompts_are_taken_from_the_dataloader_only_as_they_are_needed(
    url: str, client: Client
) -> None:
    taken = []

    def dataloader() -> Iterator[dict[str, Any]]:
        for row in rows():
            taken.append(row)
            yield row

    with fake_agent(url, lambda job: float(job.member % 2), slots=2):
        run = client.run(dataloader(), run_id="train", group_size=2)
        run.rollout(requested_batch_size=4)
    assert 4 <= len(taken) <= 8


def test_a_batch_is_fetched_again_until_it_is_acknowledged(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        run = client.run(rows(), run_id="train", group_size=2)
        batch = run.rollout(requested_batch_size=2)
        crashed_and_restarted = client.run(rows(), run_id="train", group_size=2)
        again = crashed_and_restarted.rollout(requested_batch_size=2)
        assert again.groups == batch.groups
        crashed_and_restarted.ack(again)
        crashed_and_restarted.ack(again)
        assert crashed_and_restarted.rollout(requested_batch_size=2).batch_id != batch.batch_id


def test_a_trainer_that_starts_again_feeds_new_prompts(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        for _ in range(2):
            run = client.run(itertools.islice(rows(), 2), run_id="train", group_size=2)
            run.ack(run.rollout(requested_batch_size=2))
    assert run.status().counters.jobs_submitted == 8


def test_a_rollout_ends_at_its_deadline_and_says_what_it_waited_for(client: Client) -> None:
    run = client.run(rows(), run_id="train", group_size=2)
    with pytest.raises(DeadlineExceeded, match="waiting for no agent server has registered"):
        run.rollout(requested_batch_size=1, timeout_seconds=0.1)


def test_early_termination_parks_running_jobs_and_the_next_request_resumes_them(
    url: str, client: Client
) -> None:
    release = threading.Event()

    def first_prompt_is_slow(job: Job) -> float | None:
        if job.prompt.instance["number"] == 0 and not release.is_set():
            return None
        return float(job.member % 2)

    with fake_agent(url, first_prompt_is_slow, slots=4) as agent:
        run = client.run(rows(), run_id="train", group_size=2)
        first = run.rollout(requested_batch_size=2)
        assert agent.park_arrived.wait(10)
        counters = run.status().counters
        assert counters.jobs_leased == counters.jobs_parked >= 2
        release.set()
        assert all(group.prompt.instance["number"] != 0 for group in first.groups)
        run.ack(first)
        later: list[Group] = []  # surplus may be all of the next Batch, and come before it
        while 0 not in [group.prompt.instance["number"] for group in later]:
            batch = run.rollout(requested_batch_size=2, timeout_seconds=20)
            later += batch.groups
            run.ack(batch)
        (slow,) = [group for group in later if group.prompt.instance["number"] == 0]
        assert [result.lease.attempt for result in slow.results] == [1, 1]
    assert run.status().counters.attempts_stopped == 0


def test_a_dataloader_that_ends_early_is_an_error_that_counts(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        run = client.run(itertools.islice(rows(), 3), run_id="train", group_size=2)
        with pytest.raises(PromptsExhausted, match="3 of 5 effective groups"):
            run.rollout(requested_batch_size=5)


def test_an_evaluation_takes_every_row_once(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: 1.0):
        held_out = list(itertools.islice(rows(), 20))
        run = client.run(held_out, run_id="eval", group_size=1, criterion=Criterion.COMPLETE)
        batch = run.rollout(requested_batch_size=20)
    numbers = sorted(group.prompt.instance["number"] for group in batch.groups)
    assert numbers == list(range(20))


def test_a_dataloader_may_yield_lists_of_rows(url: str, client: Client) -> None:
    batches = ([row, {**row, "number": -1}] for row in rows())
    with fake_agent(url, lambda job: float(job.member % 2)):
        run = client.run(batches, run_id="train", group_size=2)
        assert len(run.rollout(requested_batch_size=2).groups) == 2


def test_progress_says_what_the_batch_waits_for(url: str, client: Client) -> None:
    seen: list[RunStatus] = []
    with fake_agent(url, lambda job: float(job.member % 2)):
        run = client.run(rows(), run_id="train", group_size=2)
        run.rollout(requested_batch_size=2, on_progress=seen.append)
    assert seen[-1].batch_ready
    assert all(status.waiting_for for status in seen)


def test_a_row_without_data_source_is_refused_before_anything_runs(
    url: str, client: Client
) -> None:
    with fake_agent(url, lambda job: 1.0):
        run = client.run([{"question": "1+1"}], run_id="train")
        with pytest.raises(InvalidMessage, match="no 'data_source'"):
            run.rollout(requested_batch_size=1)


def test_rows_of_an_unknown_environment_wait_and_the_progress_names_those_that_exist(
    url: str, client: Client
) -> None:
    class Enough(Exception):
        pass

    def stop(status: RunStatus) -> None:
        if status.unoffered:
            raise Enough(status.waiting_for)

    with fake_agent(url, lambda job: 1.0):
        run = client.run(rows("chess"), run_id="train", never_offered_seconds=None)
        with pytest.raises(Enough, match=r"no agent server has the environment 'chess'.*they have"):
            run.rollout(requested_batch_size=1, on_progress=stop)


def test_rows_that_no_server_can_run_do_not_keep_a_batch_from_the_others(
    url: str, client: Client
) -> None:
    """Half of the rows wait for ever; the others go to the server that has their environment."""
    ran: list[tuple[str, str]] = []

    def judge(server: str) -> Callable[[Job], float]:
        def reward(job: Job) -> float:
            ran.append((server, job.prompt.data_source))
            return float(job.member)

        return reward

    sources = itertools.cycle(["chess", "math", "chess", "code"])
    mixed = ({"data_source": source, "number": n} for n, source in enumerate(sources))
    math = fake_agent(url, judge("math"), server_id="a", environment="math")
    with math, fake_agent(url, judge("code"), server_id="b", environment="code"):
        run = client.run(mixed, run_id="train", group_size=2)
        for _ in range(3):
            batch = run.rollout(requested_batch_size=4, timeout_seconds=60)
            assert len(batch.groups) == 4
            run.ack(batch)
    assert {server == source for server, source in ran} == {True}
    assert {server for server, _ in ran} == {"math", "code"}
    counters = run.status().counters
    assert (counters.attempts_failed, counters.jobs_dead) == (0, 0)


def nested(times: int) -> list[Any]:
    return [] if times == 1 else [nested(times - 1)]


def test_a_row_that_some_reader_of_it_could_not_follow_is_refused(url: str, client: Client) -> None:
    deepest = {"data_source": "arithmetic", "nested": nested(MAX_NESTED - 1)}
    too_deep = {"data_source": "arithmetic", "nested": nested(MAX_NESTED)}
    with fake_agent(url, lambda job: float(job.member)):
        batch = client.run([deepest], run_id="a", group_size=2).rollout(requested_batch_size=1)
        assert batch.groups[0].prompt.instance == deepest
        with pytest.raises(InvalidMessage, match="nested more than 64 deep"):
            client.run([too_deep], run_id="b", group_size=2).rollout(requested_batch_size=1)


@pytest.mark.parametrize(
    ("group_size", "problem"), [(0, "at least 1, got 0"), (1, "can never be effective")]
)
def test_a_group_size_that_cannot_work_is_refused(
    client: Client, group_size: int, problem: str
) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        client.run(rows(), run_id="train", group_size=group_size)


def test_a_request_for_no_groups_is_refused(client: Client) -> None:
    run = client.run(rows(), run_id="train")
    with pytest.raises(InvalidMessage, match="requested_batch_size must be at least 1"):
        run.rollout(requested_batch_size=0)


def test_a_run_id_that_is_taken_with_other_settings_is_refused(client: Client) -> None:
    client.run(rows(), run_id="train", group_size=4)
    with pytest.raises(Conflict, match="exists with other settings"):
        client.run(rows(), run_id="train", group_size=8)


def test_a_closed_run_takes_no_more_requests(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        run = client.run(rows(), run_id="train", group_size=2)
        run.rollout(requested_batch_size=1)
        run.finish()
        run.finish()
        with pytest.raises(Conflict, match="closed"):
            run.rollout(requested_batch_size=1)


def test_a_closed_run_takes_no_more_prompts(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: 1.0):
        client.run(rows(), run_id="train").finish()
        prompt = Prompt(prompt_id="late", instance={"data_source": "arithmetic"})
        with pytest.raises(Conflict, match="closed"):
            Peer(url, name="orchestrator").post("/runs/train/prompts", [prompt], Accepted)


def test_a_batch_that_is_not_there_is_not_found(client: Client, url: str) -> None:
    client.run(rows(), run_id="train")
    with pytest.raises(NotFound, match="no batch 'nope'"):
        Peer(url, name="orchestrator").get("/runs/train/batches/nope", Batch)


def test_weights_need_an_llm_node(client: Client) -> None:
    run = client.run(rows(), run_id="train")
    with pytest.raises(LLMUnavailable, match="no LLM node has registered"):
        run.update_weights("/nowhere", version=1)
    with pytest.raises(LLMUnavailable, match="no LLM node has registered"):
        client.weights_updated(version=1)
    with pytest.raises(InvalidMessage, match="path of the checkpoint is empty"):
        client.update_weights("", version=1)


def test_a_server_that_refuses_a_job_for_good_does_not_keep_the_batch_waiting_forever(
    url: str, client: Client
) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)) as agent:
        agent.refuses = InvalidMessage("cannot run this")
        run = client.run(itertools.islice(rows(), 2), run_id="train", group_size=2)
        with pytest.raises(PromptsExhausted, match="0 of 1"):
            run.rollout(requested_batch_size=1)
    counters = run.status().counters
    assert counters.groups_dead == 2
    assert counters.jobs_accepted == 0


def test_an_orchestrator_that_is_not_there_is_named(client: Client) -> None:
    nobody = Client("http://127.0.0.1:9", patience_seconds=0.2)
    with pytest.raises(OrchestratorUnavailable, match=r"orchestrator at http://127.0.0.1:9"):
        nobody.run(rows(), run_id="train")


def test_an_orchestrator_that_comes_late_is_waited_for(patient_queues: Queues) -> None:
    port = free_port()
    waiting = Client(f"http://127.0.0.1:{port}", patience_seconds=20)
    orchestrator = Orchestrator(patient_queues)
    with ThreadPoolExecutor(1) as trainer:
        status = trainer.submit(waiting.status)
        time.sleep(0.3)
        assert not status.done()
        with served(create_app(orchestrator), port):
            assert status.result(20).servers == ()
    orchestrator.close()


def test_a_server_that_comes_back_elsewhere_is_sent_its_jobs_there(
    url: str, client: Client
) -> None:
    def alternating(job: Job) -> float:
        return float(job.member % 2)

    run = client.run(rows(), run_id="train", group_size=2)
    for _ in range(2):
        with fake_agent(url, alternating, server_id="agent-0", slots=2):
            run.ack(run.rollout(requested_batch_size=1, timeout_seconds=10))
    assert run.status().counters.attempts_failed == 0


def test_a_server_that_falls_silent_is_forgotten(make_queues: QueueMaker) -> None:
    queues = make_queues(Queues, lease_seconds=0.2)
    orchestrator = Orchestrator(queues)
    server = AgentServer(
        server_id="a", url="http://127.0.0.1:9", slots=1, environments=("arithmetic",)
    )
    orchestrator.register(server, "127.0.0.1")
    until("the server is forgotten", lambda: not queues.servers.registered())
    orchestrator.close()


def test_an_unreachable_agent_costs_its_jobs_nothing(url: str, client: Client) -> None:
    def dies_unseen(job: Job) -> float:
        return float(job.member % 2)

    with fake_agent(url, dies_unseen, server_id="gone", slots=2) as gone:
        gone.refuses = AgentUnreachable("out of order")
        with fake_agent(url, dies_unseen, server_id="good", slots=2):
            run = client.run(rows(), run_id="train", group_size=2)
            batch = run.rollout(requested_batch_size=2)
    assert {result.lease.server_id for g in batch.groups for result in g.results} == {"good"}
    assert run.status().counters.attempts_failed == 0


def test_the_status_shows_runs_and_servers(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: 1.0, slots=3):
        client.run(rows(), run_id="train")
        status = client.status()
    assert [run.run_id for run in status.runs] == ["train"]
    assert [(server.server_id, server.slots) for server in status.servers] == [("agent-0", 3)]


def test_a_rollout_ends_when_its_run_is_closed(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: None):
        run = client.run(rows(), run_id="train", group_size=2)
        closing = threading.Timer(0.5, RunAPI(OrchestratorAPI(url), "train").finish)
        closing.start()
        with pytest.raises(Conflict, match="is closed"):
            run.rollout(requested_batch_size=1, timeout_seconds=10)
        closing.join()


def test_a_row_that_nobody_can_run_spoils_none_that_is_fed_with_it(
    url: str, client: Client
) -> None:
    """It is named once, and never fed again; what was drawn with it is fed the next time."""
    nobodys = {"data_source": "arithmetic", "nested": nested(MAX_NESTED)}
    good = itertools.islice(rows(), 3)
    with fake_agent(url, lambda job: float(job.member)):
        run = client.run(itertools.chain([nobodys], good), run_id="train", group_size=2)
        with pytest.raises(InvalidMessage, match="nested more than 64 deep"):
            run.rollout(requested_batch_size=3)
        batch = run.rollout(requested_batch_size=3, timeout_seconds=20)
        numbers = [group.prompt.instance["number"] for group in batch.groups]
        assert sorted(numbers) == [0, 1, 2]


TRAJECTORY: dict[str, Any] = {
    "token_ids": array("i", [1]),
    "loss_mask": array("b", [1]),
    "logprobs": array("f", [-0.5]),
    "weight_spans": [{"version": 1, "start": 0, "end": 1}],
    "turns": [],
    "messages": [],
}
COMPLETED: dict[str, Any] = {
    "lease": {"job_id": "train/p/0", "attempt": 1, "server_id": "a", "slot": "a#0"},
    "outcome": "completed",
    "grade": {"reward": 1.0},
    "trajectory": TRAJECTORY,
}


def without(message: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != field}


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (COMPLETED | {"grade": {"reward": math.nan}}, "finite reward"),
        (COMPLETED | {"grade": None}, "needs its grade"),
        (COMPLETED | {"outcome": "infra_failed"}, "must not carry a grade"),
        (without(COMPLETED, "trajectory"), "needs its trajectory"),
        (without(COMPLETED, "lease"), "missing required field `lease`"),
        (COMPLETED | {"score": 1.0}, "unknown field `score`"),
        (COMPLETED | {"trajectory": without(TRAJECTORY, "turns")}, "missing required field"),
        (COMPLETED | {"trajectory": TRAJECTORY | {"tokens": 1}}, "unknown field `tokens`"),
        *(
            (COMPLETED | {"trajectory": TRAJECTORY | {"weight_spans": spans}}, "weight_spans")
            for spans in (3, [3], [{"version": -1, "start": 0, "end": 1}])
        ),
    ],
)
def test_what_the_sampler_reads_of_a_result_is_checked_at_the_door(
    url: str, client: Client, sent: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        Peer(url, name="orchestrator").post("/results", [sent], list[Reported])


def with_nan_for_the_second_member(result: Result) -> object:
    sent = msgspec.msgpack.decode(codec.encode(result))
    if result.lease.job_id.endswith("/1"):
        sent["trajectory"]["logprobs"] = array("f", [0.0, 0.0, math.nan, -0.25])
    return sent


def test_a_trajectory_that_nobody_can_train_on_stops_the_trainer_and_names_its_job(
    url: str, client: Client
) -> None:
    with fake_agent(url, lambda job: float(job.member)) as agent:
        agent.sends = with_nan_for_the_second_member
        run = client.run(rows(), run_id="train", group_size=2)
        for _ in range(2):
            with pytest.raises(InvalidMessage, match=r"job 'train/.*/1'.* NaN") as refused:
                run.rollout(1, timeout_seconds=20)
            assert "rollyard drain agent-0" in refused.value.fix


def test_results_whose_leases_are_all_lost_are_a_conflict(url: str, client: Client) -> None:
    lease = Lease(job_id="train/p/0", attempt=1, server_id="agent-0", slot="agent-0#0")
    late = Result(lease=lease, outcome=Outcome.CANCELLED, error="too late")
    with pytest.raises(StaleAttempt, match="train/p/0 attempt 1"):
        Peer(url, name="orchestrator").post("/results", [late], list[Reported])
