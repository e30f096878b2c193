"""Agents that are programs of their own, from the task in their sandbox to the grade."""

import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psutil
import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.command import CommandAgent
from agent_server.agents.protocol import AgentGateway, PolicySession, Task
from agent_server.control.stop import StopReason, StopSignal
from agent_server.environments.black_box import BlackBox
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Needs, Opening
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.stages import SharedPolicy
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import LLMUnavailable
from rollyard.messages import Blame, ChatMessage, Grade, Limits, Outcome, Prompt, Result, Sampling
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    Fails,
    NeverAnswers,
    Says,
    assign,
    make_job,
)
from tests.agent_server.running import Running, Start
from tests.waiting import until

AGENT = """
import json, os, urllib.request

def ask(conversation):
    body = {"model": "policy", "messages": conversation}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {**headers, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

conversation = [{"role": "user", "content": open("task.md").read()}]
for objection in ("Are you sure?", ""):
    conversation.append({"role": "assistant", "content": ask(conversation)})
    conversation.append({"role": "user", "content": objection})
open("answer.txt", "w").write(conversation[-2]["content"])
"""
ASKS = f"/usr/bin/python3 -c {shlex.quote(AGENT)}"
JOB = make_job(
    instance={"data_source": "echo", "a": 3, "b": 4, "answer": 12},
    limits=Limits(max_turns=4, max_tokens=400, job_seconds=30),
    sampling=Sampling(max_response_tokens=64),
)

Begin = Callable[[SharedPolicy, type[BlackBox]], Running]


class Products(BlackBox):
    command = ASKS
    task = "Multiply {a} by {b}."


def commanded(command: str) -> type[BlackBox]:
    """The environment with this command in the place of its own."""
    return type("Commanded", (Products,), {"command": command})


@pytest.fixture
def gateway() -> Iterator[AgentGateway]:
    with closing(Gateway()) as made:
        yield made


@pytest.fixture
def begin(start: Start, sandboxes: Bubblewrap, gateway: AgentGateway) -> Begin:
    """Starts a runner with real sandboxes and the gateway."""
    return lambda policy, environment: start(
        policy, environment, sandboxes=sandboxes, gateway=gateway
    )


def result(running: Running) -> Result:
    running.runner.accept(assign(JOB))
    return running.result()


def test_a_program_asks_the_policy_and_what_it_leaves_is_graded(
    template: ChatTemplate, begin: Begin
) -> None:
    ended = result(begin(Says(template, "11", "12"), Products))
    assert ended.outcome is Outcome.COMPLETED, ended.error
    assert ended.grade == Grade(reward=1.0, reason="answered '12'")
    assert ended.trajectory is not None
    assert not ended.trajectory.truncated
    assert [(each.role, each.content) for each in ended.trajectory.messages] == [
        ("user", "Multiply 3 by 4."),
        ("assistant", "11"),
        ("user", "Are you sure?"),
        ("assistant", "12"),
    ]


def test_its_failure_is_graded_once_it_has_asked(template: ChatTemplate, begin: Begin) -> None:
    ended = result(begin(Says(template, "11", "12"), commanded(f"{ASKS}; exit 9")))
    assert ended.outcome is Outcome.COMPLETED, ended.error
    assert ended.grade is not None
    assert ended.grade.reward == 1.0


def test_one_that_ends_before_it_asks_is_a_failure_with_its_last_words(
    template: ChatTemplate, begin: Begin
) -> None:
    ended = result(begin(Says(template), commanded("echo 12 > answer.txt; echo no model; exit 3")))
    assert (ended.outcome, ended.blame) == (Outcome.INFRA_FAILED, Blame.ROW)
    assert "its command ended with exit code 3 and said: no model" in ended.error


def test_a_policy_that_fails_is_never_a_reward(begin: Begin) -> None:
    policy = Fails(LLMUnavailable("all LLM servers are away"))
    ended = result(begin(policy, commanded(f"{ASKS} || echo 12 > answer.txt")))
    assert (ended.outcome, ended.blame) == (Outcome.INFRA_FAILED, Blame.SERVER)
    assert "all LLM servers are away" in ended.error


def test_one_that_nobody_needs_any_more_ends(begin: Begin) -> None:
    policy = NeverAnswers()
    running = begin(policy, Products)
    running.runner.accept(assign(JOB))
    assert policy.asked.wait(PATIENCE_SECONDS)
    running.runner.cancel(assign(JOB).lease)
    assert running.result().outcome is Outcome.CANCELLED


def test_what_it_has_left_is_graded_when_its_time_is_over(
    template: ChatTemplate, sandboxes: Bubblewrap, gateway: AgentGateway
) -> None:
    environment, stop = commanded(f"{ASKS}; sleep 600")(), StopSignal()
    with sandboxes.open(SandboxNeeds()) as sandbox, ThreadPoolExecutor(1) as threads:
        task = Task(
            name="t",
            job=JOB,
            opening=environment.start(JOB.prompt, sandbox),
            prompt=(),
            environment=InThread(Products),
            policy=Says(template, "11", "12"),
            template=template,
            sandbox=sandbox,
            gateway=gateway,
        )
        with stop.interrupting(sandbox.interrupt):
            running = threads.submit(CommandAgent(task).run, stop)
            until("it has answered", lambda: rewarded(environment), PATIENCE_SECONDS)
            stop.stop(StopReason.OUT_OF_TIME)
            trajectory = running.result(PATIENCE_SECONDS)
    assert trajectory.truncated
    assert len(trajectory.turns) == 2


def rewarded(environment: BlackBox) -> bool:
    return environment.grade().reward == 1.0


def test_no_command_line_of_this_machine_has_its_key(
    template: ChatTemplate, start: Start, sandboxes: Bubblewrap, gateway: AgentGateway
) -> None:
    command_lines: list[str] = []

    class Looks(Says):
        """A policy that looks at all command lines before it answers."""

        def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
            for process in psutil.process_iter(["cmdline"]):
                command_lines.extend(process.info["cmdline"] or ())
            return super().generate(request, stop)

    remembers = Remembers(gateway)
    policy = Looks(template, "11", "12")
    running = start(policy, Products, sandboxes=sandboxes, gateway=remembers)
    assert result(running).outcome is Outcome.COMPLETED
    (session,) = remembers.sessions
    assert AGENT in command_lines
    assert not any(session.key in each for each in command_lines)


class Remembers:
    """A gateway that tells which sessions it has opened."""

    def __init__(self, gateway: AgentGateway) -> None:
        self._gateway = gateway
        self.sessions: list[PolicySession] = []

    @contextmanager
    def open(self, task: Task, stop: StopSignal) -> Iterator[PolicySession]:
        with self._gateway.open(task, stop) as session:
            self.sessions.append(session)
            yield session


class CommandsNothing(Products):
    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        return Opening(messages=(ChatMessage(role="user", content="hello"),))


class HasNoSandbox(Products):
    needs = Needs(agent="command")

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        return Opening(messages=(), command="true")


@pytest.mark.parametrize(
    ("environment", "lacking"), [(CommandsNothing, "no command"), (HasNoSandbox, "no sandbox")]
)
def test_an_environment_that_gives_it_nothing_to_run_fails_its_row(
    template: ChatTemplate, begin: Begin, environment: type[BlackBox], lacking: str
) -> None:
    ended = result(begin(Says(template), environment))
    assert (ended.outcome, ended.blame) == (Outcome.INFRA_FAILED, Blame.ROW)
    assert f"needs the agent `command`, and gives it {lacking}" in ended.error
