"""Every wait has one true sentence; asked over HTTP, with real queues and made-up agent servers."""

import threading
from collections.abc import Iterator

import pytest

from orchestrator.app import create_app
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.queues.jobs import Standing
from orchestrator.queues.runs import Run
from orchestrator.queues.servers import Offer
from orchestrator.queues.tasks import MAX_QUEUED_JOBS
from orchestrator.sampling.decisions import Chosen, Hold, Open, Park
from orchestrator.sampling.state import GroupState, Member, SamplerState, Wanted
from orchestrator.service import Orchestrator
from orchestrator.trainers import Trainers
from orchestrator.why import Fleet, why_group, why_job, why_no_slot, why_server
from orchestrator.why_batch import why_not_complete
from rollyard import Client
from rollyard.errors import Conflict, NotFound, Unavailable
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    AgentServerStatus,
    AttemptOutcome,
    AttemptRecord,
    BatchRequest,
    DeadJob,
    DeadJobs,
    Explanation,
    Job,
    JobList,
    JobRecord,
    JobState,
    Prediction,
    Prompt,
    Requeued,
    RunSettings,
    RunStatus,
    ServerCondition,
    ServerList,
    ServerState,
)
from tests.orchestrator.fake_agents import FakeAgent, fake_agent
from tests.orchestrator.moves import conclude, decide
from tests.queue_fixtures import publish
from tests.serving_threads import served

NO_FLEET = Fleet(servers=())


@pytest.fixture
def peer(orchestrator: Orchestrator) -> Iterator[Peer]:
    with served(create_app(orchestrator)) as url:
        yield Peer(url, name="orchestrator")


@pytest.fixture
def agent(peer: Peer) -> Iterator[FakeAgent]:
    """Two Slots; member 0 of every Group never ends by itself."""
    judge = lambda job: None if job.member == 0 else 1.0  # noqa: E731
    with fake_agent(peer.url, judge, slots=2) as agent:
        yield agent


def why(peer: Peer, name: str) -> str:
    return peer.get(f"/why/{name}", Explanation).reason


def feed(peer: Peer, *prompts: str) -> None:
    for prompt in prompts:
        message = Prompt(prompt_id=prompt, instance={"data_source": "arithmetic"})
        peer.post("/runs/train/prompts", [message], Accepted)


def create(peer: Peer) -> None:
    peer.post("/runs", RunSettings(run_id="train", group_size=2), RunStatus)


def request(peer: Peer) -> None:
    batch = BatchRequest(batch_id="b", requested_batch_size=1)
    peer.post("/runs/train/batches", batch, RunStatus)


def until(peer: Peer, orchestrator: Orchestrator, job: str, state: JobState) -> JobRecord:
    for _ in range(100):
        record = peer.get(f"/jobs/{job}", JobRecord)
        if record.state is state:
            return record
        orchestrator.queues.runs.wait_for_news("train", 0.1)
    pytest.fail(f"{job} is {record.state}, not {state}: {why(peer, job)}")


def test_a_run_says_what_its_batch_waits_for(peer: Peer) -> None:
    create(peer)
    assert why(peer, "train") == "the trainer has not requested a batch"
    request(peer)
    assert why(peer, "train") == "no agent server has registered"
    assert why(peer, "b") == "no agent server has registered"


def test_a_batch_a_group_and_its_jobs_say_what_they_wait_for(
    peer: Peer, agent: FakeAgent, orchestrator: Orchestrator
) -> None:
    create(peer)
    feed(peer, "p0", "p1", "p2")
    assert why(peer, "train/p0/0") == "its run is held: the trainer has not requested a batch"
    request(peer)
    until(peer, orchestrator, "train/p0/1", JobState.ACCEPTED)
    until(peer, orchestrator, "train/p1/0", JobState.LEASED)
    assert why(peer, "train/p0/1") == "it has its result, with reward 1"
    assert why(peer, "train/p0/0").startswith("attempt 1 runs on agent-0 since ")
    assert (
        why(peer, "train/p1/1")
        == "none of the 2 slots is free; 0 jobs of its run and kind are before it"
    )
    assert why(peer, "train/p2/1").endswith("2 jobs of its run and kind are before it")
    assert why(peer, "train/p0").startswith("1 of 2 members have their result; of train/p0/0: att")
    assert why(peer, "agent-0") == "all 2 slots of agent-0 run a job"
    assert "1 more effective groups; 2 jobs are on agent servers, 3 wait" in why(peer, "b")


def test_a_cancelled_job_frees_its_slot_and_drops_its_group(
    peer: Peer, agent: FakeAgent, orchestrator: Orchestrator
) -> None:
    create(peer)
    feed(peer, "p0")
    request(peer)
    until(peer, orchestrator, "train/p0/1", JobState.ACCEPTED)
    with pytest.raises(Conflict, match="is accepted: there is nothing to cancel"):
        peer.post("/jobs/train/p0/1/cancel", None, Accepted)
    peer.post("/jobs/train/p0/0/cancel", None, Accepted)
    assert agent.cancel_arrived.wait(10)
    run = peer.get("/runs/train", RunStatus)
    assert (run.open_groups, run.counters.groups_cancelled, run.counters.jobs_dropped) == (0, 1, 1)
    with pytest.raises(NotFound, match="its group was dropped"):
        peer.get("/jobs/train/p0/0", JobRecord)
    (server,) = peer.get("/servers", ServerList).servers
    assert server.condition.reclaims == 1
    assert 0 < server.condition.worst_reclaim_seconds < 5


def test_a_drained_server_gets_nothing_more_and_says_so(peer: Peer, agent: FakeAgent) -> None:
    create(peer)
    request(peer)
    peer.post("/servers/agent-0/drain", None, Accepted)
    feed(peer, "p0")
    (server,) = peer.get("/servers", ServerList).servers
    assert server.condition.state is ServerState.DRAINING
    sentence = "no agent server takes jobs: agent-0 is draining: an operator asked it to leave"
    assert why(peer, "train") == sentence
    assert why(peer, "train/p0/0") == f"{sentence}; 0 jobs of its run and kind are before it"
    with pytest.raises(NotFound, match="no agent server 'agent-7'"):
        peer.post("/servers/agent-7/drain", None, Accepted)


def test_dead_jobs_are_listed_with_their_reason_and_requeued(
    peer: Peer, orchestrator: Orchestrator
) -> None:
    mended = threading.Event()

    def judge(job: Job) -> float | None:
        return float(job.member) if mended.is_set() else None

    with fake_agent(peer.url, judge, slots=2) as agent:
        agent.refuses = NotFound("no such environment here")
        client = Client(peer.url, patience_seconds=5)
        run = client.run(
            ({"data_source": "arithmetic"} for _ in range(1)), run_id="train", group_size=2
        )
        run.request(1)
        dead = until_dead(peer, orchestrator)
        assert dead[0].reason == "no such environment here"
        agent.refuses = None
        mended.set()
        group = peer.post(f"/jobs/{dead[0].job_id}/requeue", None, Requeued).group_id
        batch = run.rollout(requested_batch_size=1, timeout_seconds=20)
        assert batch.groups[0].group_id == group
        assert peer.get("/dead", DeadJobs).jobs == ()


def until_dead(peer: Peer, orchestrator: Orchestrator) -> tuple[DeadJob, ...]:
    for _ in range(100):
        dead = peer.get("/dead?run=train", DeadJobs).jobs
        if dead:
            return dead
        orchestrator.queues.runs.wait_for_news("train", 0.1)
    pytest.fail("no job has died")


def test_jobs_are_listed_over_all_runs(peer: Peer, agent: FakeAgent) -> None:
    create(peer)
    feed(peer, "p0", "p1")
    assert len(peer.get("/jobs", JobList).jobs) == 4
    assert len(peer.get("/jobs?run=train&state=queued&limit=3", JobList).jobs) == 3
    assert peer.get("/jobs?state=dead", JobList).jobs == ()


@pytest.mark.parametrize("path", ["/jobs?state=lost", "/jobs?limit=0", "/jobs?limit=many"])
def test_a_question_that_makes_no_sense_is_refused(peer: Peer, path: str) -> None:
    with pytest.raises(Exception, match=r"not a valid query: .*(limit|state)"):
        peer.get(path, JobList)


@pytest.mark.parametrize("name", ["nothing", "nowhere/p0", "nowhere/p0/0"])
def test_nothing_is_said_of_what_does_not_wait(peer: Peer, name: str) -> None:
    with pytest.raises(NotFound):
        why(peer, name)


def test_a_run_with_too_many_queued_jobs_takes_no_more(
    peer: Peer, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_QUEUED_JOBS == 100_000
    monkeypatch.setattr("orchestrator.trainers.MAX_QUEUED_JOBS", 4)
    create(peer)
    feed(peer, "p0", "p1")
    with pytest.raises(Unavailable, match="has 4 queued jobs already"):
        feed(peer, "p2")


def status(name: str = "agent-0", busy: int = 0, **condition: object) -> AgentServerStatus:
    return AgentServerStatus(
        server_id=name,
        url="http://x",
        slots=4,
        busy_slots=busy,
        environments=("arithmetic",),
        condition=ServerCondition(**condition),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (status(busy=4), "all 4 slots of agent-0 run a job"),
        (
            status(busy=1),
            "agent-0 has 3 free slots, and no job of a run that wants a batch is queued",
        ),
        (status(seen_seconds_ago=9), "has not been heard of for 9 s"),
        (
            status(
                state=ServerState.QUARANTINED, let_back_in_seconds=12, failing_jobs=("a", "b", "c")
            ),
            "is quarantined for another 12 s because 3 jobs in a row failed there",
        ),
        (status(state=ServerState.QUARANTINED), "until its next heartbeat offers one slot"),
        (status(state=ServerState.PROBATION), "is on probation with one slot"),
    ],
)
def test_a_server_says_why_it_does_not_run_more(server: AgentServerStatus, sentence: str) -> None:
    assert sentence in why_server(server, [], NO_FLEET)


def test_slots_that_can_become_free_are_worth_waiting_for() -> None:
    drained = status("agent-1", state=ServerState.DRAINING)
    assert why_no_slot(Fleet(servers=(status(busy=4), drained))) == ""
    trial = status("agent-1", state=ServerState.PROBATION)
    assert why_no_slot(Fleet(servers=(trial, drained))) == ""
    assert "agent-1 is draining" in why_no_slot(Fleet(servers=(drained,)))


def test_a_job_on_a_silent_server_says_so(orchestrator: Orchestrator) -> None:
    orchestrator.queues.runs.create(RunSettings(run_id="train", group_size=2))
    attempt = AttemptRecord(
        attempt=1, server_id="agent-0", leased_at=0.0, outcome=AttemptOutcome.RUNNING
    )
    job = JobRecord(job_id="train/p/0", state=JobState.LEASED, attempts=(attempt,))
    fleet = Fleet(servers=(status(busy=1, seen_seconds_ago=11.0),))
    sentence = why_job(job, orchestrator.queues.runs.read("train"), fleet)
    assert sentence.endswith("but that server has not been heard of for 11 s")


def test_a_parked_job_and_its_run_say_that_they_wait_for_the_trainer(
    patient_queues: Queues, server: AgentServer
) -> None:
    """Nobody collects here: the sampler's part is made up."""
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    queues.servers.register(server)
    queues.tasks.submit("train", [Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})])
    decide(queues, Open())
    queues.leases.lease()
    state = SamplerState(open={"p0": GroupState(number=0, asked=2)}, groups_fed=1)
    state.delivered = {"b": (Chosen(group_id="p9", members=(0, 1)),)}
    conclude(queues, Park(), events=0, state=state)
    why = Operators(queues).why
    waits = "batch 'b' is complete and waits for the trainer to acknowledge it"
    assert why("train").reason == why("b").reason == waits
    parked = f"it waits parked on agent-0 for the trainer's next batch: {waits}"
    assert why("train/p0/0").reason == parked
    assert why("train/p0").reason.endswith(f"of train/p0/0: {parked}")
    assert "in batch 'b'" in why_group(
        "p9", with_complete(queues.runs.read("train"), "p9"), [], NO_FLEET
    )


def with_complete(run: Run, group_id: str) -> Run:
    run.state.open[group_id] = GroupState(number=9, asked=2)
    run.state.close(group_id)
    return run


def test_an_effective_group_says_what_it_waits_for(patient_queues: Queues) -> None:
    patient_queues.runs.create(RunSettings(run_id="train", group_size=2))
    run = with_complete(patient_queues.runs.read("train"), "p0")
    assert "launch_order" in why_group("p0", run, [], NO_FLEET)
    run.state.ready = [Chosen(group_id="p0", members=(0, 1))]
    assert why_group("p0", run, [], NO_FLEET).startswith("it is effective and waits for its batch")


def test_a_group_in_its_first_stage_says_how_many_members_were_begun(
    patient_queues: Queues,
) -> None:
    settings = RunSettings(run_id="train", group_size=4, prediction=Prediction(stage_members=2))
    patient_queues.runs.create(settings)
    run = patient_queues.runs.read("train")
    run.state.open["p0"] = GroupState(number=0, asked=2, done={0: Member(1.0, 0, 1.0)})
    sentence = why_group("p0", run, [], NO_FLEET)
    assert sentence.startswith("1 of 4 members have their result, of 2 begun: the others are begun")


def test_a_lost_job_says_that_it_waits_for_another_server(orchestrator: Orchestrator) -> None:
    queues = orchestrator.queues
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    run = queues.runs.read("train")
    run.state.wanted = [Wanted(batch_id="b", requested_batch_size=1, weight_version=0)]
    lost = AttemptRecord(attempt=1, server_id="agent-0", leased_at=0.0, outcome=AttemptOutcome.LOST)
    job = JobRecord(
        job_id="train/p/0",
        state=JobState.QUEUED,
        environment="arithmetic",
        attempts=(lost,),
        avoids=("agent-0",),
        avoids_seconds=12.0,
    )
    two = Fleet(servers=(status(), status("agent-1", busy=4)), offer=Offer(free={"agent-0": 4}))
    sentence = "it failed on agent-0 and waits for a slot of another server, for 12 s at most"
    assert sentence in why_job(job, run, two)
    alone = Fleet(servers=(status(),), offer=Offer(free={"agent-0": 4}))
    assert "4 slots are free and about to be leased" in why_job(job, run, alone)


def test_a_run_starved_by_parked_jobs_says_whose_they_are(
    patient_queues: Queues, server: AgentServer
) -> None:
    """Nobody collects here: the sampler's part is made up."""
    queues = patient_queues
    queues.servers.register(server)
    for run_id in ("other", "train"):
        queues.runs.create(RunSettings(run_id=run_id, group_size=2))
        prompt = Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})
        queues.tasks.submit(run_id, [prompt])
        wanted = Wanted(batch_id="b", requested_batch_size=1, weight_version=0)
        state = SamplerState(wanted=[wanted] if run_id == "train" else [], groups_fed=1)
        conclude(queues, Open(), run_id=run_id, events=1, state=state)
        queues.leases.lease(2)
    conclude(queues, Hold(), Park(), run_id="other", events=0)
    keep = "parked jobs keep theirs until their trainer wants its next batch (2 of run 'other')"
    why = Operators(queues).why
    assert why("train").reason == f"no slot becomes free: {keep}"
    assert Trainers(queues).run_status("train").waiting_for == f"no slot becomes free: {keep}"
    assert why("train/p0/0").reason.startswith(f"no slot becomes free: {keep}; 0 jobs of")
    assert why("agent-0").reason == f"all 2 slots of agent-0 run a job: {keep}"
    queues.servers.drain("agent-0")
    assert why("agent-0").reason.endswith(f"2 of 2 slots run a job: {keep}")


def test_slots_that_some_jobs_work_on_become_free_though_others_are_parked() -> None:
    standing = Standing(leased=4, parked={"other": 3})
    fleet = Fleet(servers=(status(busy=4),), standing=standing)
    assert why_no_slot(fleet) == ""


def test_a_batch_that_loses_members_to_their_age_says_so(patient_queues: Queues) -> None:
    patient_queues.runs.create(RunSettings(run_id="train", group_size=2, max_staleness=1))
    publish(patient_queues, 6)
    run, serving = (
        patient_queues.runs.read("train"),
        patient_queues.connection.ask(patient_queues.weights.serving()),
    )
    run.state.wanted = [Wanted(batch_id="b", requested_batch_size=2, weight_version=6)]
    assert "older" not in why_not_complete(run, "", "", 0, serving)
    run.state.members_restarted, run.state.restarted_before = 7, 3
    lost = "4 members were begun again for it because their tokens were older than weight version 5"
    assert why_not_complete(run, "", "", 0, serving).endswith(lost)
    assert (
        why_not_complete(run, "", "", 3, serving)
        == f"the trainer's dataloader owes 3 prompts; {lost}"
    )
    run.state.members_restarted += 1
    assert why_not_complete(run, "", "", 0, serving).endswith(
        "do all LLM servers serve that version or newer?"
    )
