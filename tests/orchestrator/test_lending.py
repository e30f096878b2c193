"""When parked Jobs give way: promised by the queues."""

from collections.abc import Callable

import msgspec
import pytest

from orchestrator.events import BatchAcknowledged
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Hold, Open, Park
from orchestrator.sampling.state import SamplerState, Wanted
from orchestrator.trainers import Trainers
from rollyard.errors import NotFound, TrainerReplaced
from rollyard.messages import (
    AgentServer,
    AttemptOutcome,
    JobState,
    Lease,
    Prompt,
    RunSettings,
    Share,
    Trainer,
)
from tests.orchestrator.moves import assert_conserved, conclude, decide, leased, moved_by
from tests.queue_fixtures import QUARANTINE, QueueMaker

MakePrompt = Callable[[str], Prompt]
JOBS = ("train/p0/0", "train/p0/1")
TRAINER = Trainer(trainer_id="first", host="node-1", pid=11)


class AgedQueues(Queues):
    """Queues whose trainers and parked Jobs can be made to look back on a longer time."""

    def silence(self, run_id: str, seconds: float) -> None:
        key = self.connection.of_run(run_id, "trainer")
        seen = float(self.connection.do(lambda r: r.hget(key, "seen")))
        self.connection.do(lambda r: r.hset(key, "seen", seen - seconds))

    def stand(self, run_id: str, job: str, seconds: float) -> None:
        """The Job has stood parked for so much longer."""
        key = self.connection.of_run(run_id, "times")
        *rest, since = self.connection.do(lambda r: r.hget(key, job)).split()
        earlier = b"%f" % (float(since) - seconds)
        self.connection.do(lambda r: r.hset(key, job, b" ".join([*rest, earlier])))


@pytest.fixture
def queues(
    make_queues: QueueMaker, settings: RunSettings, server: AgentServer, prompt: MakePrompt
) -> AgedQueues:
    """Run `train` has a trainer, and both its Jobs are parked on all the Slots that there are; Run
    `other` is open, and has nothing to do."""
    queues = make_queues(AgedQueues, lease_seconds=60.0, quarantine=QUARANTINE)
    for run_id in ("train", "other"):
        queues.runs.create(msgspec.structs.replace(settings, run_id=run_id))
        decide(queues, Open(), run_id=run_id)
    queues.epochs.claim("train", TRAINER)
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt("p0")])
    for _ in JOBS:
        leased(queues)
    moved_by(queues, Hold(), Park())
    return queues


def gave_way(queues: AgedQueues) -> tuple[Lease, ...]:
    ended = queues.leases.lend()
    for run_id in ("train", "other"):
        assert_conserved(queues, run_id)
    return ended


def test_the_parked_jobs_of_a_silent_trainer_give_way_to_a_run_that_waits(
    queues: AgedQueues, prompt: MakePrompt
) -> None:
    queues.tasks.submit("other", [prompt("p0")])
    queues.silence("train", 5.0)
    assert {lease.job_id for lease in gave_way(queues)} == set(JOBS)
    assert [job.job_id for job in queues.jobs.records("train", JobState.QUEUED, 9)] == list(JOBS)
    counters = queues.runs.read("train").counters
    assert (counters.jobs_parked, counters.attempts_failed) == (0, 0)
    (attempt,) = queues.jobs.record(JOBS[0]).attempts
    assert attempt.outcome is AttemptOutcome.STOPPED
    assert "not heard of for 5 s, and run other waited for a slot" in attempt.reason


def test_a_job_that_gave_way_goes_on_with_its_run_as_its_next_attempt(
    queues: AgedQueues, server: AgentServer, prompt: MakePrompt
) -> None:
    queues.tasks.submit("other", [prompt("p0")])
    queues.silence("train", 5.0)
    gave_way(queues)
    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1", slots=4))
    decide(queues, Open())
    runs = {each.lease.job_id: each.lease.attempt for each in queues.leases.lease(4)}
    assert {job: runs[job] for job in JOBS} == dict.fromkeys(JOBS, 2)


def test_they_stay_while_no_other_run_waits(queues: AgedQueues) -> None:
    queues.silence("train", 3600.0)
    assert gave_way(queues) == ()


def test_they_stay_while_a_slot_is_free(
    queues: AgedQueues, server: AgentServer, prompt: MakePrompt
) -> None:
    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1"))
    queues.tasks.submit("other", [prompt("p0")])
    queues.silence("train", 3600.0)
    assert gave_way(queues) == ()


def test_they_stay_while_their_trainer_lives(queues: AgedQueues, prompt: MakePrompt) -> None:
    queues.tasks.submit("other", [prompt("p0")])
    queues.silence("train", 3600.0)
    queues.epochs.heard("train", 1, leaving=False)
    assert gave_way(queues) == ()


def test_a_trainer_that_leaves_keeps_no_slot_though_nobody_waits(queues: AgedQueues) -> None:
    queues.epochs.heard("train", 1, leaving=True)
    assert len(gave_way(queues)) == len(JOBS)
    assert queues.jobs.record(JOBS[0]).attempts[-1].reason == "its trainer left the run"


def test_a_sign_of_life_that_was_on_its_way_does_not_bring_a_trainer_back(
    queues: AgedQueues,
) -> None:
    queues.epochs.heard("train", 1, leaving=True)
    queues.epochs.heard("train", 1, leaving=False)
    assert len(gave_way(queues)) == len(JOBS)


def test_a_trainer_that_comes_back_keeps_what_is_parked(queues: AgedQueues) -> None:
    queues.epochs.heard("train", 1, leaving=True)
    queues.epochs.claim("train", msgspec.structs.replace(TRAINER, trainer_id="second"))
    assert gave_way(queues) == ()


def test_of_a_trainer_that_lives_those_give_way_that_stood_long_beside_a_run_with_fewer_slots(
    queues: AgedQueues, prompt: MakePrompt
) -> None:
    queues.tasks.submit("other", [prompt("p0")])
    queues.stand("train", JOBS[1], 61.0)
    assert [lease.job_id for lease in gave_way(queues)] == [JOBS[1]]
    assert "61 s, and run other waited" in queues.jobs.record(JOBS[1]).attempts[-1].reason


def test_no_more_give_way_than_make_the_shares_even(queues: AgedQueues, prompt: MakePrompt) -> None:
    queues.tasks.submit("other", [prompt("p0")])
    for job in JOBS:
        queues.stand("train", job, 61.0)
    assert len(gave_way(queues)) == 1
    assert gave_way(queues) == ()


def test_a_run_of_more_weight_keeps_more_that_is_parked(
    queues: AgedQueues, prompt: MakePrompt
) -> None:
    queues.runs.share("train", Share(weight=2))
    queues.tasks.submit("other", [prompt("p0")])
    for job in JOBS:
        queues.stand("train", job, 61.0)
    assert gave_way(queues) == ()


def test_a_run_that_may_hold_no_more_slots_takes_none(
    queues: AgedQueues, server: AgentServer, prompt: MakePrompt
) -> None:
    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1", slots=1))
    queues.runs.share("other", Share(max_slots=1))
    queues.tasks.submit("other", [prompt("p0")])
    leased(queues)
    queues.stand("train", JOBS[1], 3600.0)
    assert gave_way(queues) == ()


def test_a_run_with_its_share_takes_none_before_the_other_is_idle(
    queues: AgedQueues, server: AgentServer, prompt: MakePrompt
) -> None:
    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1", slots=1))
    queues.tasks.submit("other", [prompt("p0")])
    leased(queues)
    queues.stand("train", JOBS[1], 599.0)
    assert gave_way(queues) == ()
    queues.stand("train", JOBS[1], 2.0)
    assert [lease.job_id for lease in gave_way(queues)] == [JOBS[1]]


def test_a_run_is_its_last_trainers(queues: AgedQueues, prompt: MakePrompt) -> None:
    second = Trainer(trainer_id="second", host="node-2", pid=22)
    assert queues.epochs.claim("train", second) == 2
    with pytest.raises(TrainerReplaced, match=r"at \d{4}-.* UTC by .*host 'node-2' with pid 22"):
        queues.tasks.submit("train", [prompt("p1")], epoch=1)
    with pytest.raises(TrainerReplaced, match="pid 22"):
        queues.events.tell("train", BatchAcknowledged(batch_id="b"), epoch=1)
    queues.events.tell("train", BatchAcknowledged(batch_id="b"), epoch=2)
    assert queues.tasks.submit("train", [prompt("p1")], epoch=2) == [True]


def test_a_claim_that_is_repeated_takes_nothing_over_again(queues: AgedQueues) -> None:
    assert queues.epochs.claim("train", TRAINER) == 1
    queues.epochs.claim("train", Trainer(trainer_id="second", host="node-2", pid=22))
    assert queues.epochs.claim("train", TRAINER) == 1
    with pytest.raises(TrainerReplaced, match="pid 22"):
        queues.epochs.heard("train", 1, leaving=False)


def test_a_run_that_does_not_exist_has_no_trainer(queues: AgedQueues) -> None:
    with pytest.raises(NotFound):
        queues.epochs.claim("none", TRAINER)
    with pytest.raises(NotFound):
        queues.epochs.heard("none", 1, leaving=False)


def test_they_stay_while_the_run_that_waits_could_not_be_leased_to_any_slot(
    queues: AgedQueues, prompt: MakePrompt
) -> None:
    """Its batch takes newer weights than were published."""
    queues.tasks.submit("other", [prompt("p0")])
    newer = Wanted(batch_id="b", requested_batch_size=1, weight_version=9)
    conclude(queues, state=SamplerState(wanted=[newer]), run_id="other")
    queues.silence("train", 3600.0)
    queues.stand("train", JOBS[1], 3600.0)
    assert gave_way(queues) == ()


@pytest.mark.parametrize(
    ("leaving", "gone"),
    [(False, "the trainer has not been heard of for 36"), (True, "the trainer has left the run")],
)
def test_a_run_says_when_the_trainer_that_it_waits_for_is_gone(
    queues: AgedQueues, leaving: bool, gone: str
) -> None:
    held = f"the trainer has not requested a batch; {gone}"
    assert gone not in Trainers(queues).run_status("train").waiting_for
    queues.silence("train", 3600.0)
    if leaving:
        queues.epochs.heard("train", 1, leaving=True)
    trainers = Trainers(queues)
    assert Operators(queues).why("train").reason.startswith(held)
    assert trainers.run_status("train").waiting_for.startswith(held)
    assert held in Operators(queues).why(JOBS[0]).reason
    trainers.claim_run("train", msgspec.structs.replace(TRAINER, trainer_id="second"))
    assert gone not in trainers.run_status("train").waiting_for
