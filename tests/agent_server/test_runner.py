"""The job runner: exactly one Result for every Lease, and of the right kind."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tool_loop import ToolLoop
from agent_server.control.stop import StopReason, StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import (
    EnvironmentKind,
    Episode,
    Needs,
    Observation,
    Response,
)
from agent_server.jobs.attempt import Attempt, Stage
from agent_server.jobs.runner import RunnerSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import (
    OpenSandbox,
    Sandbox,
    SandboxFactory,
    SandboxNeeds,
    SandboxUnavailable,
)
from llm_servers.generation import Unlabelled
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable, Unavailable
from rollyard.messages import Blame, ChatMessage, Limits, Outcome, Prompt, Trajectory
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    EchoEnvironment,
    Fails,
    NeverAnswers,
    SandboxesOfNothing,
    SandboxOfNothing,
    Says,
    assign,
    make_job,
)
from tests.agent_server.running import AGENTS, ECHO, SETTINGS, Start


def test_a_job_that_ends_well_is_completed_with_its_reward(
    start: Start, template: ChatTemplate
) -> None:
    policy = Says(template, "one", "bye")
    running = start(policy)
    assignment = assign(make_job(instance=ECHO))
    running.runner.accept(assignment)
    result = running.result()
    assert (result.outcome, result.reward, result.error) == (Outcome.COMPLETED, 2.0, "")
    assert result.lease == assignment.lease
    assert result.timings.run_seconds > 0
    assert policy.released == ["job-1-a1"]
    assert running.runner.leases() == ()
    assert 'rollyard_agent_jobs_total{outcome="completed"} 1.0' in running.metrics.text()


def test_filling_the_models_context_is_the_policys_doing(
    start: Start, template: ChatTemplate
) -> None:
    running = start(Says(template, "one", "x" * 500, context_tokens=80))
    limits = Limits(max_turns=9, max_tokens=32768)
    running.runner.accept(assign(make_job(instance=ECHO, limits=limits)))
    result = running.result()
    assert result.outcome is Outcome.COMPLETED
    assert result.trajectory is not None
    assert result.trajectory.truncated
    assert len(result.trajectory.token_ids) == 80


def test_hitting_a_limit_is_the_policys_doing(start: Start, template: ChatTemplate) -> None:
    running = start(Says(template, "one", "two"))
    limits = Limits(max_turns=1, max_tokens=400)
    running.runner.accept(assign(make_job(instance=ECHO, limits=limits)))
    result = running.result()
    assert (result.outcome, result.reward) == (Outcome.COMPLETED, 1.0)
    assert result.trajectory is not None
    assert result.trajectory.truncated


class BadAt(EchoEnvironment):
    """Has a bug in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def _fail_in(self, method: str) -> None:
        if method == self._method:
            raise KeyError("a bug")

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self._fail_in("start")
        return super().start(prompt, sandbox)

    def step(self, response: Response) -> Observation:
        self._fail_in("step")
        return super().step(response)

    def grade(self) -> float:
        self._fail_in("grade")
        if self._method == "text":
            text: Any = "1"
            return text  # type: ignore[no-any-return]  # as a user may write it
        return float("nan") if self._method == "nan" else super().grade()


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("start", "start failed: KeyError in _fail_in (test_runner.py:"),
        ("step", "step failed: KeyError in _fail_in (test_runner.py:"),
        ("grade", "grade failed: KeyError in _fail_in (test_runner.py:"),
        (
            "nan",
            "the environment tests.agent_server.test_runner:BadAt gave no grade: a grade needs",
        ),
        ("text", "BadAt gave no grade: a grade needs a finite reward, got '1'; give a number"),
    ],
)
def test_a_bug_in_an_environment_is_never_a_reward(
    start: Start, template: ChatTemplate, method: str, reason: str
) -> None:
    running = start(Says(template, "bye"), lambda: BadAt(method))
    running.runner.accept(assign(make_job(instance=ECHO)))
    result = running.result()
    assert (result.outcome, result.reward) == (Outcome.INFRA_FAILED, None)
    assert reason in result.error
    assert result.blame is Blame.ROW


def test_an_llm_that_is_down_is_never_a_reward(start: Start) -> None:
    running = start(Fails(LLMUnavailable("no answer from the LLM servers")))
    running.runner.accept(assign(make_job(instance=ECHO)))
    result = running.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "no answer from the LLM servers" in result.error


def test_a_job_that_waited_in_vain_for_published_weights_is_given_back(start: Start) -> None:
    running = start(Fails(Unlabelled("its weights have no version yet")))
    running.runner.accept(assign(make_job(instance=ECHO)))
    result = running.result()
    assert result.outcome is Outcome.CANCELLED  # queued again, and nobody is charged
    assert "no version yet" in result.error


def test_a_job_for_which_there_is_no_thread_fails_and_leaves_its_slot(
    start: Start, template: ChatTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(Says(template, "bye"), settings=RunnerSettings(slots=1))

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", fail)
        running.runner.accept(assign(make_job(job_id="job-1", instance=ECHO)))
    result = running.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "can't start new thread" in result.error
    assert running.runner.leases() == ()
    running.runner.accept(assign(make_job(job_id="job-2", instance=ECHO)))
    assert running.result().outcome is Outcome.COMPLETED


def test_a_sandbox_that_cannot_start_is_never_a_reward(
    start: Start, template: ChatTemplate
) -> None:
    class NoSandboxes:
        def open(self, needs: SandboxNeeds) -> OpenSandbox:
            raise SandboxUnavailable("the disk is full")

    running = start(Says(template, "bye"), sandboxes=NoSandboxes())
    running.runner.accept(assign(make_job(instance=ECHO)))
    result = running.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "the disk is full" in result.error


def test_a_row_without_a_question_fails_by_the_fields_name(
    start: Start, template: ChatTemplate
) -> None:
    running = start(Says(template))
    running.runner.accept(assign(make_job(instance={"data_source": "arithmetic", "answer": "1"})))
    result = running.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "'question'" in result.error


def test_an_unknown_environment_is_refused_with_the_known_ones(
    start: Start, template: ChatTemplate
) -> None:
    running = start(Says(template))
    with pytest.raises(InvalidMessage, match=r"unknown environment 'chess'.*arithmetic, echo"):
        running.runner.accept(assign(make_job(instance={"data_source": "chess"})))
    assert running.runner.leases() == ()


def test_a_lease_beyond_the_slots_is_refused(start: Start) -> None:
    running = start(NeverAnswers())
    for number in range(2):
        running.runner.accept(assign(make_job(job_id=f"job-{number}", instance=ECHO)))
    with pytest.raises(Conflict, match="all 2 slots are busy"):
        running.runner.accept(assign(make_job(job_id="job-9", instance=ECHO)))
    assert len(running.runner.leases()) == 2


def test_a_next_job_that_cannot_be_taken_is_handed_back(start: Start) -> None:
    def too_many_files() -> Episode:
        raise OSError("too many open files")

    running = start(NeverAnswers(), hosted={"full": EnvironmentKind(too_many_files)})
    assignment = assign(make_job(instance={"data_source": "full"}))
    running.runner.accept_next(assignment)
    result = running.result()
    assert (result.lease, result.outcome) == (assignment.lease, Outcome.CANCELLED)
    assert result.error == "too many open files"


def test_a_draining_server_hands_a_next_job_back(start: Start) -> None:
    running = start(NeverAnswers())
    running.runner.drain()
    running.runner.accept_next(assign(make_job(instance=ECHO)))
    result = running.result()
    assert (result.outcome, result.error) == (
        Outcome.CANCELLED,
        "this agent server is shutting down",
    )


def test_the_same_lease_twice_runs_once(start: Start) -> None:
    made: list[EchoEnvironment] = []

    def make() -> EchoEnvironment:
        made.append(EchoEnvironment())
        return made[-1]

    policy = NeverAnswers()
    running = start(policy, make, settings=msgspec.structs.replace(SETTINGS, slots=1))
    assignment = assign(make_job(instance=ECHO))
    running.runner.accept(assignment)
    running.runner.accept(assignment)  # not refused for want of a slot
    assert policy.asked.wait(PATIENCE_SECONDS)
    assert running.runner.leases() == (assignment.lease,)
    running.runner.close(5)
    assert len(made) == running.results.qsize() == 1


def test_cancelling_a_generation_gives_one_cancelled_result(start: Start) -> None:
    policy = NeverAnswers()
    running = start(policy)
    assignment = assign(make_job(instance=ECHO))
    running.runner.accept(assignment)
    assert policy.asked.wait(PATIENCE_SECONDS)
    assert running.runner.status("agent-1").stages == {"init": 0, "run": 1, "eval": 0}
    running.runner.cancel(assignment.lease)
    running.runner.cancel(assignment.lease)
    result = running.result()
    assert (result.outcome, result.reward, result.trajectory) == (Outcome.CANCELLED, None, None)
    running.runner.close(5)
    assert running.results.empty()


def test_cancelling_an_unknown_lease_is_fine(start: Start, template: ChatTemplate) -> None:
    running = start(Says(template))
    running.runner.cancel(assign(make_job()).lease)
    assert running.results.empty()


def test_another_attempt_of_the_same_job_is_not_cancelled(start: Start) -> None:
    running = start(NeverAnswers())
    running.runner.accept(assign(make_job(instance=ECHO), attempt=2))
    running.runner.cancel(assign(make_job(instance=ECHO), attempt=1).lease)
    assert [lease.attempt for lease in running.runner.leases()] == [2]


def test_cancelling_reaches_a_running_tool(
    start: Start, template: ChatTemplate, sandboxes: SandboxFactory
) -> None:
    class Sleeps(EchoEnvironment):
        def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
            self.sandbox = sandbox
            return super().start(prompt, sandbox)

        def step(self, response: Response) -> Observation:
            begun.set()
            self.sandbox.run(["/bin/sleep", "60"], deadline_seconds=60)
            return super().step(response)

    begun = threading.Event()
    running = start(Says(template, "one", "bye"), Sleeps, sandboxes=sandboxes)
    assignment = assign(make_job(instance=ECHO))
    running.runner.accept(assignment)
    assert begun.wait(PATIENCE_SECONDS)
    running.runner.cancel(assignment.lease)
    assert running.results.get(timeout=4).outcome is Outcome.CANCELLED


def test_an_episode_that_is_cut_off_in_a_tool_is_graded_from_its_files(
    start: Start, template: ChatTemplate, sandboxes: SandboxFactory
) -> None:
    class Writes(EchoEnvironment):
        def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
            self.sandbox = sandbox
            return super().start(prompt, sandbox)

        def step(self, response: Response) -> Observation:
            self.sandbox.bash("echo 0.5 > grade; sleep 1000", deadline_seconds=1000)
            return super().step(response)

        def grade(self) -> float:
            self.sandbox.run(["/bin/true"], deadline_seconds=PATIENCE_SECONDS)
            return float(self.sandbox.read("grade", most_bytes=10))

    limits = Limits(max_turns=4, max_tokens=400, job_seconds=1)
    running = start(Says(template, "one"), Writes, sandboxes=sandboxes)
    running.runner.accept(assign(make_job(instance=ECHO, limits=limits)))
    result = running.result()
    assert result.trajectory is not None
    assert (result.outcome, result.trajectory.truncated) == (Outcome.COMPLETED, True)
    assert result.grade is not None
    assert result.grade.reward == 0.5


def test_a_prompt_that_leaves_no_room_is_refused_before_it_is_run(
    start: Start, template: ChatTemplate
) -> None:
    limits = Limits(max_turns=1, max_tokens=10)
    running = start(Says(template))
    running.runner.accept(assign(make_job(instance=ECHO, limits=limits)))
    result = running.result()
    assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, Blame.ROW)
    assert "the prompt alone has" in result.error
    assert result.timings.run_seconds == 0


class NeedsNothing(EchoEnvironment):
    needs = Needs()


def test_a_sandbox_is_opened_only_for_an_environment_that_needs_one(
    start: Start, template: ChatTemplate
) -> None:
    opened = []

    class Sandboxes(SandboxesOfNothing):
        def open(self, needs: SandboxNeeds) -> OpenSandbox:
            opened.append(1)
            return super().open(needs)

    modest = start(Says(template, "bye"), NeedsNothing, sandboxes=Sandboxes())
    modest.runner.accept(assign(make_job(instance=ECHO)))
    assert modest.result().outcome is Outcome.COMPLETED
    assert not opened
    needy = start(Says(template, "bye"), EchoEnvironment, sandboxes=Sandboxes())
    needy.runner.accept(assign(make_job(instance=ECHO)))
    assert needy.result().outcome is Outcome.COMPLETED
    assert opened == [1]


def test_a_row_names_the_image_of_its_sandbox(start: Start, template: ChatTemplate) -> None:
    opened: list[SandboxNeeds] = []

    class OfImages(EchoEnvironment):
        needs = Needs(sandbox=SandboxNeeds(image="usual"), image_fields=("docker_image", "image"))

    class Sandboxes(SandboxesOfNothing):
        def open(self, needs: SandboxNeeds) -> OpenSandbox:
            opened.append(needs)
            return super().open(needs)

    running = start(Says(template, *["bye"] * 3), OfImages, sandboxes=Sandboxes())
    for row in ({}, {"image": "b"}, {"docker_image": "a", "image": "b"}):
        running.runner.accept(assign(make_job(instance={**ECHO, **row})))
        assert running.result().outcome is Outcome.COMPLETED
    assert [needs.image for needs in opened] == ["usual", "b", "a"]
    running.runner.accept(assign(make_job(instance={**ECHO, "image": 7})))
    assert running.result().blame is Blame.ROW


def test_an_image_that_this_server_lacks_is_the_rows_failure(
    start: Start, template: ChatTemplate, sandboxes: Bubblewrap
) -> None:
    class OfImages(EchoEnvironment):
        needs = Needs(sandbox=SandboxNeeds(), image_fields=("image",))

    running = start(Says(template), OfImages, sandboxes=sandboxes)
    running.runner.accept(assign(make_job(instance={**ECHO, "image": "me/image:1"})))
    result = running.result()
    assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, Blame.ROW)
    assert "no sandbox with the image 'me/image:1' in the directory of --images" in result.error


def test_an_environment_that_runs_commands_and_needs_no_sandbox_is_told_what_to_say(
    start: Start, template: ChatTemplate
) -> None:
    class Forgetful(NeedsNothing):
        def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
            sandbox.run(["/bin/true"], deadline_seconds=1)
            return super().start(prompt, sandbox)

    running = start(Says(template, "bye"), Forgetful)
    running.runner.accept(assign(make_job(instance=ECHO)))
    result = running.result()
    assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, Blame.ROW)
    assert "put needs = Needs(sandbox=SandboxNeeds()) into its class" in result.error


def test_the_agent_that_an_environment_asks_for_runs_its_jobs(
    start: Start, template: ChatTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OneTurn(ToolLoop):
        def run(self, stop: StopSignal) -> Trajectory:
            self.step(stop)
            return self.trajectory.finish(truncated=False)

    class Brief(EchoEnvironment):
        needs = Needs(agent="one_turn")

    monkeypatch.setitem(AGENTS, "one_turn", OneTurn)
    running = start(Says(template, "one", "bye"), Brief)
    running.runner.accept(assign(make_job(instance=ECHO)))
    trajectory = running.result().trajectory
    assert trajectory is not None
    assert len(trajectory.turns) == 1


class BrokenAtTheEnd(Says):
    """A policy that fails when its trajectory is released."""

    def __init__(self, template: ChatTemplate, error: Exception, *responses: str) -> None:
        super().__init__(template, *responses)
        self._error = error

    def release(self, trajectory: str) -> None:
        raise self._error


class CannotBeClosed(SandboxOfNothing):
    def __init__(self, error: Exception, closed: list[str]) -> None:
        self._error, self._closed = error, closed

    def close(self) -> None:
        self._closed.append("sandbox")
        raise self._error


ERRORS = (RecursionError("too deep"), OSError("the disk is gone"), Unavailable("not now"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_slot_becomes_free_and_its_result_is_reported_whatever_fails_in_cleaning_up(
    start: Start, template: ChatTemplate, error: Exception
) -> None:
    closed: list[str] = []

    class Sandboxes:
        def open(self, needs: SandboxNeeds) -> OpenSandbox:
            return CannotBeClosed(error, closed)

    policy = BrokenAtTheEnd(template, error, "bye", "bye")
    settings = RunnerSettings(slots=1)
    running = start(policy, settings=settings, sandboxes=Sandboxes())
    for number in range(2):
        running.runner.accept(assign(make_job(job_id=f"job-{number}", instance=ECHO)))
        result = running.result()
        assert (result.lease.job_id, result.outcome) == (f"job-{number}", Outcome.COMPLETED)
    assert running.runner.status("agent-1").busy == 0
    assert closed == ["sandbox", "sandbox"], "given back although the release before it failed"


class Hangs(EchoEnvironment):
    """Never comes back from `start` and cannot be stopped, until `let_go`."""

    let_go = threading.Event()

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self.let_go.wait(PATIENCE_SECONDS)
        return super().start(prompt, sandbox)


@pytest.fixture
def hanging() -> Iterator[type[Hangs]]:
    Hangs.let_go.clear()
    yield Hangs
    Hangs.let_go.set()


def test_a_stage_that_hangs_is_reported_once_and_keeps_its_slot(
    start: Start, template: ChatTemplate, hanging: type[Hangs]
) -> None:
    settings = RunnerSettings(slots=1, init_seconds=0.1, grace_seconds=0.1)
    running = start(Says(template, "bye"), hanging, settings=settings)
    running.runner.accept(assign(make_job(instance=ECHO)))
    result = running.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "init did not end within" in result.error
    assert running.runner.leases() == ()
    with pytest.raises(Conflict):
        running.runner.accept(assign(make_job(job_id="job-2", instance=ECHO)))
    lost = running.runner.lost()
    assert lost.count == 1
    assert lost.reason.startswith(
        "1 of 1 slots are held by attempts that ignore their end (job-1-a1"
    )
    assert running.runner.status("agent-1").lost == lost
    assert running.runner.why_not_ready() == lost.reason
    assert "rollyard_agent_slots_lost 1.0" in running.metrics.text()
    hanging.let_go.set()
    running.runner.close(5)
    assert running.runner.why_not_ready() == ""
    assert running.runner.status("agent-1").busy == 0
    assert running.results.empty()


def test_a_reward_that_comes_after_the_failure_was_reported_is_dropped(
    start: Start, template: ChatTemplate
) -> None:
    class GradesLate(EchoEnvironment):
        def grade(self) -> float:
            let_go.wait(PATIENCE_SECONDS)
            return super().grade()

    let_go = threading.Event()
    settings = RunnerSettings(slots=1, eval_seconds=0.1, grace_seconds=0.1)
    running = start(Says(template, "bye"), GradesLate, settings=settings)
    running.runner.accept(assign(make_job(instance=ECHO)))
    assert "eval did not end within" in running.result().error
    let_go.set()
    running.runner.close(5)
    assert running.runner.status("agent-1").busy == 0
    assert running.results.empty()


def test_an_environment_that_needs_longer_to_grade_has_the_time(
    start: Start, template: ChatTemplate
) -> None:
    class GradesSlowly(EchoEnvironment):
        needs = Needs(eval_seconds=PATIENCE_SECONDS)

        def grade(self) -> float:
            threading.Event().wait(0.2)  # longer than the server gives, and then it gives up
            return super().grade()

    settings = RunnerSettings(slots=1, eval_seconds=0.01, grace_seconds=0.01)
    running = start(Says(template, "bye"), GradesSlowly, settings=settings)
    running.runner.accept(assign(make_job(instance=ECHO)))
    assert running.result().reward == 1.0


def test_a_cancelled_stage_that_hangs_is_reported_as_cancelled(
    start: Start, template: ChatTemplate, hanging: type[Hangs]
) -> None:
    running = start(
        Says(template, "bye"), hanging, settings=RunnerSettings(slots=1, grace_seconds=0.1)
    )
    assignment = assign(make_job(instance=ECHO))
    running.runner.accept(assignment)
    running.runner.cancel(assignment.lease)
    assert running.result().outcome is Outcome.CANCELLED


def test_a_job_cancelled_between_two_stages_does_not_begin_the_next() -> None:
    attempt = Attempt(assign(make_job(instance=ECHO)), partial(InThread, EchoEnvironment))
    with attempt.enter(Stage.INIT):
        pass
    attempt.cancellation.stop(StopReason.CANCELLED)
    with attempt.enter(Stage.RUN) as stop:
        assert stop.reason is StopReason.CANCELLED


def test_a_policy_out_of_time_is_stopped_by_the_runner(start: Start) -> None:
    running = start(NeverAnswers())
    limits = Limits(max_turns=1, max_tokens=400, job_seconds=0.1)
    running.runner.accept(assign(make_job(instance=ECHO, limits=limits)))
    result = running.result()
    assert result.outcome is Outcome.INFRA_FAILED
    assert "not give one response in 0.1 s" in result.error


def test_a_draining_server_takes_nothing_new(start: Start, template: ChatTemplate) -> None:
    running = start(Says(template))
    running.runner.drain()
    with pytest.raises(Unavailable, match="shutting down"):
        running.runner.accept(assign(make_job(instance=ECHO)))
    assert running.runner.status("agent-1").draining


def test_close_stops_everything(start: Start) -> None:
    policy = NeverAnswers()
    running = start(policy)
    assignment = assign(make_job(instance=ECHO))
    running.runner.accept(assignment)
    assert policy.asked.wait(PATIENCE_SECONDS)
    running.runner.close(5)
    assert running.result().lease == assignment.lease
    assert running.runner.status("agent-1").busy == 0


def test_a_slot_is_free_again_before_its_result_is_reported(
    start: Start, template: ChatTemplate
) -> None:
    """The orchestrator may send the next Job while we still report this one."""
    running = start(Says(template, "bye", "bye"), settings=RunnerSettings(slots=1))
    running.runner.accept(assign(make_job(job_id="job-1", instance=ECHO)))
    running.result()
    running.runner.accept(assign(make_job(job_id="job-2", instance=ECHO)))
    assert running.result().lease.job_id == "job-2"
