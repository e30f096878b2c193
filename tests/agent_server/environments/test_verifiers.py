"""Rows of verifiers' environments, here of a stand-in for the library, in real sandboxes."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import InThread, in_thread
from agent_server.environments.protocol import EnvironmentFailed, Episode
from agent_server.environments.verifiers.environment import Verifiers
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.stages import SharedPolicy
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.settings import SandboxSettings
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import LLMUnavailable, Unavailable
from rollyard.messages import Blame, Grade, Limits, Outcome, Prompt, Sampling
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    Fails,
    NeverAnswers,
    Says,
    assign,
    make_job,
)
from tests.agent_server.running import Running, Start

STAND_IN = Path(__file__).parent / "libraries" / "verifiers.py"
PYTHON = """#!/bin/sh
exec /usr/bin/python3 -I -c 'import runpy, sys
sys.path.insert(0, "/opt/rollyard/tools/verifiers")
runpy.run_path(sys.argv[2], run_name="__main__")' "$@"
"""

Play = Callable[..., Episode]
Begin = Callable[[SharedPolicy], Running]


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Bubblewrap]:
    """Sandboxes whose tool environment has the stand-in."""
    with TemporaryDirectory() as directory:
        tools = Path(directory)
        tools.chmod(0o755)  # every user can reach it
        python = tools / "verifiers" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)
        (tools / "verifiers" / "verifiers.py").write_bytes(STAND_IN.read_bytes())
        sources = RootSources(tool_environments=tools)
        with closing(Bubblewrap(SandboxSettings(sources=sources))) as made:
            yield made


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(Verifiers.needs.sandbox) as opened:  # type: ignore[arg-type]
        yield opened


def row(*questions: str, does: str = "nothing", rubric: str = "answers") -> dict[str, Any]:
    given = {"questions": questions or ("6*7?",), "answer": "42"}
    arguments = {"does": does, "rubric": rubric}
    return {"data_source": "verifiers", "env": "questions", "args": arguments, "input": given}


def begun(sandbox: Sandbox, instance: dict[str, Any]) -> Episode:
    episode = InThread(Verifiers)
    episode.start(Prompt(prompt_id="p", instance=instance), sandbox)
    return episode


@pytest.fixture
def play(sandbox: Sandbox) -> Play:
    """Plays a row with a policy that says its solution."""

    def played(instance: dict[str, Any], *says: object) -> Episode:
        episode = begun(sandbox, instance | {"solution": says})
        episode.solve()
        return episode

    return played


def test_the_rubric_gives_the_reward_and_metrics(play: Play) -> None:
    grade = play(row("6*7?", "Are you sure?"), "41", {"content": "42"}).grade()
    assert grade == Grade(reward=1.0, metrics={"right": 1.0, "turns": 2.0}, reason="over")
    assert play(row(), "41").grade().reward == 0.0


def test_a_policy_without_more_turns_is_graded_by_what_it_said(play: Play) -> None:
    grade = play(row("6*7?", "Are you sure?"), "42").grade()
    assert (grade.reward, grade.reason) == (1.0, "prompt_too_long")


@pytest.mark.parametrize(
    ("does", "error", "said"),
    [
        ("loses its sandbox", Unavailable, "InfraError: it is lost"),
        ("cannot reach its server", Unavailable, "ConnectionRefusedError: it is lost"),
        ("is out of time", Unavailable, "own time for a rollout was over"),
        ("hangs", Unavailable, "took more than 0.2 s"),
        ("raises", EnvironmentFailed, "KeyError: 'it is lost'"),
        ("dies", EnvironmentFailed, "its process ended with exit code 7"),
    ],
)
def test_a_failure_of_theirs_is_never_a_reward(
    play: Play, does: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        play(row(does=does) | {"seconds": 0.2 if does == "hangs" else 60}, "42").grade()


@pytest.mark.parametrize("does", ["cannot read a call", "gets no words"])
def test_what_the_policy_said_is_graded_also_where_nobody_can_read_it(
    play: Play, does: str
) -> None:
    assert play(row(does=does), "42").grade().reward == 1.0


def test_a_reward_function_that_raises_gives_no_reward(play: Play) -> None:
    with pytest.raises(EnvironmentFailed, match="its rubric failed caused by KeyError: 'lost'"):
        play(row(rubric="fails"), "42").grade()


def test_a_metric_that_raises_is_left_out(play: Play) -> None:
    grade = play(row(rubric="has a broken metric"), "42").grade()
    assert (grade.reward, grade.metrics) == (1.0, {"right": 1.0})


def test_a_rubric_that_compares_members_of_a_group_is_refused(play: Play) -> None:
    with pytest.raises(EnvironmentFailed, match="compares the rollouts of a group"):
        play(row(rubric="compares"), "42").grade()


def test_a_package_that_is_not_there_is_named(play: Play) -> None:
    with pytest.raises(EnvironmentFailed, match="Could not import 'answers' environment"):
        play(row() | {"env": "answers"}, "42").grade()


PLAYED = json.dumps({"outcome": "graded", "reason": "", "reward": 1.0})
FORGED = f"echo {shlex.quote(json.dumps({'body': PLAYED, 'mac': 'é'}))}"


@pytest.mark.parametrize(
    "code",
    [
        f"{FORGED} > result.json",
        "mkdir -p result.json/full/of/them",
        "ln -s /etc/passwd result.json",
        "echo 'raise SystemExit' > traceback.py",
    ],
)
def test_code_of_the_policy_changes_no_reward(play: Play, code: str) -> None:
    assert play(row(does="runs code"), code).grade().reward == 0.0


def test_a_result_that_is_not_the_environments_own_is_worth_nothing(
    play: Play, sandbox: Sandbox
) -> None:
    episode = play(row(), "42")
    sandbox.bash(f"{FORGED} > result.json", deadline_seconds=10)
    grade = episode.grade()
    assert (grade.reward, grade.reason) == (0.0, "the environment's result was overwritten")


def test_code_of_the_policy_finds_no_key(play: Play, sandbox: Sandbox) -> None:
    looks = "cat task.json /proc/$PPID/environ /proc/$PPID/mem > seen.txt 2> denied.txt"
    play(row(does="runs code"), looks).grade()
    assert sandbox.read("seen.txt", most_bytes=100) == b""
    denied = sandbox.read("denied.txt", most_bytes=1000).decode()
    assert denied.count("Permission denied") == 2
    assert denied.count("No such file") == 1


def test_nothing_done_is_worth_nothing(sandbox: Sandbox) -> None:
    assert begun(sandbox, row()).grade().reward == 0.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"env": 3}, "env"), ({"input": None}, "input"), ({"seconds": 0}, "must be positive")],
)
def test_a_row_that_cannot_be_is_refused(
    sandbox: Sandbox, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        begun(sandbox, row() | change)


@pytest.fixture
def begin(start: Start, sandboxes: Bubblewrap) -> Iterator[Begin]:
    """Starts a runner with the gateway."""
    with closing(Gateway()) as gateway:
        hosted = {"verifiers": in_thread(Verifiers)}
        yield lambda policy: start(policy, sandboxes=sandboxes, hosted=hosted, gateway=gateway)


def accept(running: Running, instance: dict[str, Any], **limits: Any) -> None:
    given = {"max_turns": 4, "max_tokens": 400, "job_seconds": 60} | limits
    sampling = Sampling(max_response_tokens=64)
    running.runner.accept(
        assign(make_job(instance=instance, limits=Limits(**given), sampling=sampling))
    )


def test_the_trajectory_is_what_the_gateway_recorded(template: ChatTemplate, begin: Begin) -> None:
    running = begin(Says(template, "41", "42"))
    accept(running, row("6*7?", "Are you sure?"))
    ended = running.result()
    assert ended.outcome is Outcome.COMPLETED, ended.error
    assert ended.grade is not None
    assert (ended.grade.reward, ended.grade.metrics["turns"]) == (1.0, 2.0)
    assert ended.trajectory is not None
    assert [each.content for each in ended.trajectory.messages] == [
        *("6*7?", "41"),
        *("Are you sure?", "42"),
    ]


def test_one_whose_turns_are_spent_is_graded(template: ChatTemplate, begin: Begin) -> None:
    running = begin(Says(template, "42"))
    accept(running, row("6*7?", "Are you sure?"), max_turns=1)
    ended = running.result()
    assert ended.outcome is Outcome.COMPLETED, ended.error
    assert ended.grade is not None
    assert (ended.grade.reward, ended.grade.reason) == (1.0, "prompt_too_long")


def test_a_policy_that_fails_fails_the_attempt(begin: Begin) -> None:
    running = begin(Fails(LLMUnavailable("all LLM servers are away")))
    accept(running, row())
    ended = running.result()
    assert (ended.outcome, ended.blame) == (Outcome.INFRA_FAILED, Blame.SERVER)
    assert "all LLM servers are away" in ended.error


class AnswersOnce(Says):
    """A policy that answers once, and then only when it is stopped."""

    def generate(self, request: TurnRequest, stop: Any) -> Generation:
        if self.requests:
            return NeverAnswers().generate(request, stop)
        return super().generate(request, stop)


def test_one_whose_time_is_over_in_mid_rollout_is_truncated_without_a_reward(
    template: ChatTemplate, begin: Begin
) -> None:
    running = begin(AnswersOnce(template, "42"))
    accept(running, row("6*7?", "Are you sure?"), job_seconds=2)
    ended = running.result()
    assert ended.outcome is Outcome.COMPLETED, ended.error
    assert ended.trajectory is not None
    assert ended.trajectory.truncated
    assert ended.grade == Grade(reward=0.0, reason="it was cut off before its rubric was asked")


def test_one_that_nobody_needs_any_more_ends(begin: Begin) -> None:
    policy = NeverAnswers()
    running = begin(policy)
    accept(running, row())
    assert policy.asked.wait(PATIENCE_SECONDS)
    running.runner.cancel(assign(make_job()).lease)
    assert running.result().outcome is Outcome.CANCELLED
