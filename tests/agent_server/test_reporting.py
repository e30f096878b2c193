"""Results and presence, told to an orchestrator that goes away, forgets and refuses."""

import queue
from array import array
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from agent_server.outbox import Outbox
from agent_server.presence import Presence, PresenceSettings
from launch.free_ports import free_port
from rollyard.errors import (
    DeadlineExceeded,
    InvalidMessage,
    QueueUnavailable,
    RollyardError,
    StaleAttempt,
)
from rollyard.http import orchestrator_at
from rollyard.messages import (
    AgentServer,
    Assignment,
    Grade,
    Lease,
    LLMEndpoint,
    LogprobKind,
    LostSlots,
    Outcome,
    Result,
    Timings,
    Trajectory,
)
from tests.agent_server.fakes import PATIENCE_SECONDS, OrchestratorForAgents, assign, make_job
from tests.serving_threads import served

ENDPOINT = LLMEndpoint(url="http://127.0.0.1:2", dialect="prorl", logprobs=LogprobKind.MODEL)
MYSELF = AgentServer(
    server_id="agent-1", url="http://127.0.0.1:1", slots=2, environments=("arithmetic",)
)
REGISTRATION = msgspec.structs.replace(MYSELF, llm_servers=(ENDPOINT,))
"""With what was found of its LLM servers."""
QUICK = PresenceSettings(ready_seconds=20, heartbeat_seconds=0.05)
LEASE = assign(make_job()).lease


def completed(job_id: str = "job-1", *, tokens: int = 1) -> Result:
    trajectory = Trajectory(
        token_ids=array("i", [1]) * tokens,
        loss_mask=array("b", [0]) * tokens,
        logprobs=array("f", [0]) * tokens,
        weight_spans=(),
        turns=(),
        messages=(),
    )
    lease = Lease(job_id=job_id, attempt=1, server_id="agent-1", slot="s0")
    return Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=1.0), trajectory=trajectory
    )


def unexpected(assignment: Assignment) -> None:
    raise AssertionError(f"nobody offered {assignment}")


@pytest.fixture
def outbox(orchestrator_url: str) -> Iterator[Outbox]:
    box = Outbox(orchestrator_at(orchestrator_url), unexpected)
    yield box
    box.close()


def test_a_result_is_delivered_once(outbox: Outbox, orchestrator: OrchestratorForAgents) -> None:
    outbox.put(completed())
    assert orchestrator.result() == completed()
    outbox.flush(PATIENCE_SECONDS)
    assert outbox.leases() == ()
    assert orchestrator.results.empty()


def test_the_answer_to_a_result_brings_the_slots_next_job(
    orchestrator: OrchestratorForAgents, orchestrator_url: str
) -> None:
    taken: queue.Queue[Assignment] = queue.Queue()
    box = Outbox(orchestrator_at(orchestrator_url), taken.put)
    assignment = assign(make_job(job_id="next"))
    orchestrator.assignments = [assignment]
    box.put(completed())
    assert taken.get(timeout=PATIENCE_SECONDS) == assignment
    box.close()


def test_a_job_that_has_ended_is_not_started_again_by_the_answer_to_an_older_result(
    orchestrator: OrchestratorForAgents, orchestrator_url: str
) -> None:
    taken: queue.Queue[Assignment] = queue.Queue()
    box = Outbox(orchestrator_at(orchestrator_url), taken.put)
    ended, following = (assign(make_job(job_id=name)) for name in ("ended", "next"))
    orchestrator.assignments = [ended, following]
    for _ in range(2):
        box.put(completed("ended"))
        box.flush(PATIENCE_SECONDS)
    assert taken.get(timeout=PATIENCE_SECONDS) == following
    assert taken.empty()
    box.close()


def test_a_next_job_that_cannot_be_started_holds_up_no_result_that_travelled_with_it(
    orchestrator: OrchestratorForAgents,
) -> None:
    def fail(_: Assignment) -> None:
        raise RuntimeError("can't start new thread")

    port = free_port()
    box = Outbox(orchestrator_at(f"http://127.0.0.1:{port}"), fail)
    names = [f"job-{number}" for number in range(8)]  # more than there are threads to send them
    orchestrator.assignments = [assign(make_job(job_id="next"))]
    try:
        for name in names:
            box.put(completed(name))
        with served(orchestrator.app(), port):
            results = [orchestrator.result() for _ in names]
            box.flush(PATIENCE_SECONDS)
        assert sorted(r.lease.job_id for r in results) == names
        assert box.leases() == ()
    finally:
        box.close()


def test_a_result_is_kept_until_the_orchestrator_is_back(
    orchestrator: OrchestratorForAgents,
) -> None:
    port = free_port()
    box = Outbox(orchestrator_at(f"http://127.0.0.1:{port}"), unexpected)
    try:
        box.put(completed("job-1"))
        box.put(completed("job-2"))
        box.flush(0.3)
        assert {lease.job_id for lease in box.leases()} == {"job-1", "job-2"}
        with served(orchestrator.app(), port):
            assert {orchestrator.result().lease.job_id for _ in range(2)} == {"job-1", "job-2"}
            box.flush(PATIENCE_SECONDS)
        assert box.leases() == ()
    finally:
        box.close()


class NotAPlainFloat(float):
    """A number of another library."""


UNENCODABLE = Timings(run_seconds=NotAPlainFloat(1.0))


def test_a_result_that_cannot_be_encoded_is_reported_as_a_failure(
    outbox: Outbox, orchestrator: OrchestratorForAgents
) -> None:
    outbox.put(msgspec.structs.replace(completed(), timings=UNENCODABLE))
    failure = orchestrator.result()
    assert failure.outcome is Outcome.INFRA_FAILED
    assert "cannot encode NotAPlainFloat" in failure.error
    outbox.flush(PATIENCE_SECONDS)
    assert outbox.leases() == ()


def test_a_queue_that_is_away_is_waited_for(
    outbox: Outbox, orchestrator: OrchestratorForAgents
) -> None:
    orchestrator.refuse_results = [QueueUnavailable("redis is away")] * 2
    outbox.put(completed())
    assert orchestrator.result() == completed()


def test_a_stale_attempt_is_dropped(outbox: Outbox, orchestrator: OrchestratorForAgents) -> None:
    orchestrator.refuse_results = [StaleAttempt("the lease was lost")]
    outbox.put(completed())
    outbox.flush(PATIENCE_SECONDS)
    assert outbox.leases() == ()
    assert orchestrator.results.empty()


def test_a_result_that_is_refused_ends_as_a_failure_with_the_reason(
    outbox: Outbox, orchestrator: OrchestratorForAgents
) -> None:
    orchestrator.refuse_results = [InvalidMessage("too large")]
    outbox.put(completed())
    result = orchestrator.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "too large" in result.error


def test_a_result_that_is_refused_spoils_none_that_travels_with_it(
    orchestrator: OrchestratorForAgents,
) -> None:
    port = free_port()
    box = Outbox(orchestrator_at(f"http://127.0.0.1:{port}"), unexpected)
    try:
        for number in range(8):  # more than there are threads to send them: some travel together
            timings = UNENCODABLE if number == 7 else Timings()
            box.put(msgspec.structs.replace(completed(f"job-{number}"), timings=timings))
        with served(orchestrator.app(), port):
            outcomes = {
                r.lease.job_id: r.outcome for r in (orchestrator.result() for _ in range(8))
            }
            box.flush(PATIENCE_SECONDS)
        assert outcomes.pop("job-7") is Outcome.INFRA_FAILED
        assert set(outcomes.values()) == {Outcome.COMPLETED}
        assert box.leases() == ()
    finally:
        box.close()


def test_of_results_that_travel_together_each_learns_its_own_receipt(
    outbox: Outbox, orchestrator: OrchestratorForAgents
) -> None:
    orchestrator.stale = {"job-1"}
    outbox.put(completed("job-1"))
    outbox.put(completed("job-2"))
    assert orchestrator.result().lease.job_id == "job-2"
    outbox.flush(PATIENCE_SECONDS)
    assert outbox.leases() == ()


@pytest.mark.parametrize(("results", "tokens", "most"), [(200, 1, 64), (12, 200_000, 2)])
def test_no_more_results_travel_together_than_one_request_may_carry(
    orchestrator: OrchestratorForAgents, results: int, tokens: int, most: int
) -> None:
    port = free_port()
    box = Outbox(orchestrator_at(f"http://127.0.0.1:{port}"), unexpected)
    try:
        for number in range(results):
            box.put(completed(f"job-{number}", tokens=tokens))
        with served(orchestrator.app(), port):
            box.flush(PATIENCE_SECONDS)
        assert box.leases() == ()
        assert max(orchestrator.loads) == most
    finally:
        box.close()


def test_a_draining_server_asks_for_no_more_jobs(
    outbox: Outbox, orchestrator: OrchestratorForAgents
) -> None:
    for number in range(2):
        outbox.put(completed(f"job-{number}"))
        orchestrator.result()
        outbox.drain()
    assert orchestrator.asked_for_more == [True, False]


def test_a_closed_outbox_still_knows_what_it_did_not_deliver() -> None:
    box = Outbox(orchestrator_at(f"http://127.0.0.1:{free_port()}"), unexpected)
    box.put(completed())
    box.close()
    box.put(completed("job-2"))
    assert [lease.job_id for lease in box.leases()] == ["job-1"]


class ReadyLLMServers:
    """LLM servers that are ready once `reasons` is empty, and what they were told."""

    def __init__(self, reasons: Sequence[str] = ()) -> None:
        self._reasons = reasons
        self.told: queue.Queue[int] = queue.Queue()

    def why_not_ready(self) -> str:
        return self._reasons[0] if self._reasons else ""

    def endpoints(self) -> tuple[LLMEndpoint, ...]:
        return (ENDPOINT,)

    def learn(self, published: int) -> None:
        self.told.put(published)


class Workload:
    """One running Lease, and what it was told."""

    def __init__(self) -> None:
        self.cancelled: queue.Queue[Lease] = queue.Queue()
        self.told: queue.Queue[tuple[str, Lease]] = queue.Queue()

    def leases(self) -> tuple[Lease, ...]:
        return (LEASE,)

    def lost(self) -> LostSlots:
        return LostSlots(count=1, reason="a job ignores its end")

    def lent(self) -> int:
        return 3

    def cancel(self, lease: Lease) -> None:
        self.cancelled.put(lease)

    def park(self, lease: Lease, as_of: float) -> None:
        self.told.put(("park", lease))

    def resume(self, lease: Lease, as_of: float) -> None:
        self.told.put(("resume", lease))


@pytest.fixture
def workload() -> Workload:
    return Workload()


@pytest.fixture
def presence(orchestrator_url: str, workload: Workload) -> Iterator[Presence]:
    present = Presence(
        orchestrator_at(orchestrator_url), MYSELF, workload, tuple, ReadyLLMServers(), QUICK
    )
    yield present
    present.close()


def failed(error: RollyardError) -> None:
    raise AssertionError(error)


def test_a_server_registers_and_then_sends_its_leases(
    presence: Presence, orchestrator: OrchestratorForAgents
) -> None:
    assert presence.waiting_for != ""
    presence.start(failed)
    assert orchestrator.registrations.get(timeout=PATIENCE_SECONDS) == REGISTRATION
    heartbeat = orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS)
    assert heartbeat.leases == (LEASE,)
    assert heartbeat.lost == LostSlots(count=1, reason="a job ignores its end")
    assert heartbeat.lent == 3
    assert presence.waiting_for == ""


def test_what_is_lent_is_told_at_once(
    orchestrator: OrchestratorForAgents, orchestrator_url: str, workload: Workload
) -> None:
    rarely = PresenceSettings(heartbeat_seconds=3600.0)
    present = Presence(
        orchestrator_at(orchestrator_url), MYSELF, workload, tuple, ReadyLLMServers(), rarely
    )
    present.start(failed)
    assert orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS).lent == 3
    present.beat_soon()
    assert orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS).lent == 3
    present.close()


def test_the_weights_published_last_are_told_at_registration_and_with_every_heartbeat(
    orchestrator: OrchestratorForAgents, orchestrator_url: str, workload: Workload
) -> None:
    llm_servers, orchestrator.published = ReadyLLMServers(), 3
    present = Presence(
        orchestrator_at(orchestrator_url), MYSELF, workload, tuple, llm_servers, QUICK
    )
    present.start(failed)
    assert llm_servers.told.get(timeout=PATIENCE_SECONDS) == 3
    orchestrator.published = 4
    while (told := llm_servers.told.get(timeout=PATIENCE_SECONDS)) == 3:
        pass
    assert told == 4
    present.close()


def test_a_heartbeat_names_each_lease_once_also_while_its_result_is_on_its_way(
    orchestrator: OrchestratorForAgents, orchestrator_url: str, workload: Workload
) -> None:
    reported = assign(make_job(job_id="reported")).lease
    present = Presence(
        *(orchestrator_at(orchestrator_url), MYSELF, workload),
        lambda: (LEASE, reported),
        ReadyLLMServers(),
        QUICK,
    )
    present.start(failed)
    assert orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS).leases == (LEASE, reported)
    present.close()


def test_a_server_that_was_forgotten_registers_again(
    presence: Presence, orchestrator: OrchestratorForAgents
) -> None:
    presence.start(failed)
    orchestrator.registrations.get(timeout=PATIENCE_SECONDS)
    orchestrator.known = False
    assert orchestrator.registrations.get(timeout=PATIENCE_SECONDS) == REGISTRATION


def test_a_drained_server_leaves_and_does_not_come_back(
    presence: Presence, orchestrator: OrchestratorForAgents
) -> None:
    orchestrator.drained = True
    presence.start(failed)
    assert orchestrator.farewells.get(timeout=PATIENCE_SECONDS).server_id == MYSELF.server_id
    assert "an operator drained this server" in presence.waiting_for
    assert orchestrator.registrations.qsize() == 1
    assert orchestrator.heartbeats.qsize() == 1


def test_leases_that_are_lost_are_cancelled(
    presence: Presence, orchestrator: OrchestratorForAgents, workload: Workload
) -> None:
    orchestrator.stop = (LEASE,)
    presence.start(failed)
    assert workload.cancelled.get(timeout=PATIENCE_SECONDS) == LEASE


def test_a_lease_that_is_held_is_told_to_stand_still_or_to_run(
    presence: Presence, orchestrator: OrchestratorForAgents, workload: Workload
) -> None:
    orchestrator.parked = (LEASE,)
    presence.start(failed)
    assert workload.told.get(timeout=PATIENCE_SECONDS) == ("park", LEASE)
    orchestrator.parked = ()
    while (told := workload.told.get(timeout=PATIENCE_SECONDS)) == ("park", LEASE):
        pass
    assert told == ("resume", LEASE)
    assert workload.cancelled.empty()


def test_heartbeats_go_on_when_a_cancellation_fails(
    presence: Presence,
    orchestrator: OrchestratorForAgents,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: queue.Queue[Lease] = queue.Queue()

    def fail(lease: Lease) -> None:
        asked.put(lease)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workload, "cancel", fail)
    orchestrator.stop = (LEASE,)
    presence.start(failed)
    assert [asked.get(timeout=PATIENCE_SECONDS) for _ in range(2)] == [LEASE, LEASE]


def test_an_orchestrator_that_comes_late_is_waited_for(
    orchestrator: OrchestratorForAgents, workload: Workload
) -> None:
    port = free_port()
    present = Presence(
        orchestrator_at(f"http://127.0.0.1:{port}"),
        MYSELF,
        workload,
        tuple,
        ReadyLLMServers(),
        QUICK,
    )
    present.start(failed)
    try:
        with served(orchestrator.app(), port):
            assert orchestrator.registrations.get(timeout=PATIENCE_SECONDS) == REGISTRATION
    finally:
        present.close()


def test_a_server_registers_only_when_it_is_ready(
    orchestrator: OrchestratorForAgents, orchestrator_url: str, workload: Workload
) -> None:
    reasons = ["no answer from the LLM server"]
    present = Presence(
        *(orchestrator_at(orchestrator_url), MYSELF, workload, tuple),
        ReadyLLMServers(reasons),
        QUICK,
    )
    present.start(failed)
    try:
        with pytest.raises(queue.Empty):
            orchestrator.registrations.get(timeout=0.3)
        assert present.waiting_for == "no answer from the LLM server"
        reasons.clear()
        assert orchestrator.registrations.get(timeout=PATIENCE_SECONDS) == REGISTRATION
    finally:
        present.close()


def test_a_start_that_takes_too_long_says_what_it_waited_for(
    orchestrator_url: str, workload: Workload
) -> None:
    heard: queue.Queue[RollyardError] = queue.Queue()
    settings = PresenceSettings(ready_seconds=0.3)
    present = Presence(
        orchestrator_at(orchestrator_url),
        MYSELF,
        workload,
        tuple,
        ReadyLLMServers(["no LLM yet"]),
        settings,
    )
    present.start(heard.put)
    error = heard.get(timeout=PATIENCE_SECONDS)
    assert isinstance(error, DeadlineExceeded)
    assert "agent-1 is not ready after 0.3 s: no LLM yet" in str(error)


def test_heartbeats_go_on_when_the_orchestrator_comes_back(
    orchestrator: OrchestratorForAgents, workload: Workload
) -> None:
    port = free_port()
    present = Presence(
        orchestrator_at(f"http://127.0.0.1:{port}"),
        MYSELF,
        workload,
        tuple,
        ReadyLLMServers(),
        QUICK,
    )
    present.start(failed)
    try:
        with served(orchestrator.app(), port):
            orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS)
        while not orchestrator.heartbeats.empty():
            orchestrator.heartbeats.get()
        with served(orchestrator.app(), port):
            orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS)
    finally:
        present.close()


def test_the_farewell_names_the_server_and_cannot_fail(
    presence: Presence, orchestrator: OrchestratorForAgents, workload: Workload
) -> None:
    presence.leave()
    assert orchestrator.farewells.get(timeout=PATIENCE_SECONDS).server_id == MYSELF.server_id
    down = orchestrator_at(f"http://127.0.0.1:{free_port()}")
    Presence(down, MYSELF, workload, tuple, ReadyLLMServers(), QUICK).leave()
