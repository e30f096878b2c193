"""Fakes that agent server tests talk to: an orchestrator over HTTP, a policy, environments."""

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from flask import Flask, request
from flask import Response as Answer

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopReason, StopSignal
from agent_server.environments.protocol import Needs, Observation, Response
from agent_server.sandbox.protocol import (
    Address,
    CommandResult,
    OpenSandbox,
    Sandbox,
    SandboxNeeds,
)
from llm_servers.generation import NOTHING, Generation, TurnRequest
from rollyard.errors import KINDS, RollyardError
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    Assignment,
    ChatMessage,
    Farewell,
    Heartbeat,
    HeartbeatReply,
    Job,
    Lease,
    Limits,
    Prompt,
    Receipt,
    Registered,
    Reported,
    Result,
    Sampling,
    Taken,
    WeightSpan,
)
from serving.api import new_app, reply
from tests.serving_threads import read

PATIENCE_SECONDS = 20.0


def make_job(
    *,
    job_id: str = "job-1",
    instance: dict[str, Any] | None = None,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
) -> Job:
    row = {"data_source": "arithmetic", "question": "37*48", "answer": "1776"}
    return Job(
        job_id=job_id,
        run_id="run",
        group_id="group",
        member=0,
        prompt=Prompt(prompt_id="row", instance=row if instance is None else instance),
        sampling=sampling or Sampling(max_response_tokens=64),
        limits=limits or Limits(max_turns=4, max_tokens=400, job_seconds=30),
    )


def assign(job: Job, *, attempt: int = 1, slot: str = "s0") -> Assignment:
    lease = Lease(job_id=job.job_id, attempt=attempt, server_id="agent-1", slot=slot)
    return Assignment(job=job, lease=lease)


def hand(agent: Peer, *assignments: Assignment) -> None:
    """Send an agent server its Jobs. Raises what it refuses the first one with."""
    for refusal in agent.post("/jobs", assignments, Taken).refused:
        raise KINDS[refusal.code](refusal.message)


def said(text: str) -> Response:
    """A response without calls or reasoning."""
    return Response(text=text, content=text)


class Says:
    """A policy that gives these texts, one a Turn, each sampled by `version`."""

    def __init__(
        self,
        template: ChatTemplate,
        *responses: str,
        version: int = 0,
        context_tokens: int = 4096,
        end: int | None = None,
    ) -> None:
        self.context_tokens = context_tokens
        self._end = template.end_token_id if end is None else end
        self._template = template
        self._responses = list(responses)
        self._version = version
        self.requests: list[TurnRequest] = []
        self.released: list[str] = []

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        stop.check()
        self.requests.append(request)
        text = self._responses.pop(0)
        ids = (*self._template.encode(text), self._end)
        cut = len(ids) > request.max_tokens
        return generation(
            ids[: request.max_tokens], "length" if cut else "stop", version=self._version
        )

    def release(self, trajectory: str) -> None:
        self.released.append(trajectory)


class Recites:
    """A policy that says the given conversation word for word, each token with a logprob of its
    own; before each it does what `before` says, by the number of tokens drawn so far."""

    context_tokens = 4096

    def __init__(self, conversation: Sequence[int]) -> None:
        self.version = 0
        self.requests: list[TurnRequest] = []
        self.before: Callable[[int], None] = lambda _: None
        self.after_each: Callable[[], None] = lambda: None
        """Done whenever it has no more to say to a request, or was stopped."""
        self._conversation = tuple(conversation)
        self._drawn = itertools.count()

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        self.requests.append(request)
        start = len(request.token_ids)
        assert tuple(request.token_ids) == self._conversation[:start], "another conversation"
        said = NOTHING
        while said.finish_reason == "abort":
            self.before(next(self._drawn))
            if stop.reason is not None:
                break
            said = said.followed_by(self._token(start + len(said.token_ids))).ended_by(request)
        self.after_each()
        if not said.token_ids or stop.reason is StopReason.CANCELLED:
            stop.check()
        return said

    def release(self, trajectory: str) -> None:
        pass

    def _token(self, position: int) -> Generation:
        token = self._conversation[position]
        span = WeightSpan(version=self.version, start=0, end=1)
        return Generation(
            token_ids=(token,), logprobs=(-position,), weight_spans=(span,), finish_reason="abort"
        )


class NeverAnswers:
    """A policy that waits until it is stopped."""

    context_tokens = 4096

    def __init__(self) -> None:
        self.asked = threading.Event()

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        self.asked.set()
        stop.wait(PATIENCE_SECONDS)
        stop.check()
        raise AssertionError("nobody stopped the policy")

    def release(self, trajectory: str) -> None:
        pass


class Fails:
    """A policy whose server is broken in the given way."""

    context_tokens = 4096

    def __init__(self, error: Exception) -> None:
        self._error = error

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        raise self._error

    def release(self, trajectory: str) -> None:
        pass


def generation(ids: Sequence[int], finish_reason: str = "stop", *, version: int = 0) -> Generation:
    spans = (WeightSpan(version=version, start=0, end=len(ids)),) if ids else ()
    return Generation(
        token_ids=tuple(ids),
        logprobs=tuple(-0.5 for _ in ids),
        weight_spans=spans,
        finish_reason=finish_reason,
    )


class EchoEnvironment:
    """Repeats what it hears until it hears `bye`; the reward is the number of steps."""

    needs = Needs(sandbox=SandboxNeeds())

    def __init__(self) -> None:
        self.steps = 0

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        return (ChatMessage(role="user", content="hello"),)

    def step(self, response: Response) -> Observation:
        self.steps += 1
        if response.text == "bye":
            return Observation(done=True)
        return Observation(messages=(ChatMessage(role="tool", content=response.text),))

    def grade(self) -> float:
        return float(self.steps)


class SandboxOfNothing(OpenSandbox):
    """A sandbox that runs nothing, for environments that do not need one."""

    alive = True

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        raise AssertionError("no command is expected")

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        raise AssertionError("no command is expected")

    def write(self, path: str, content: bytes) -> None:
        raise AssertionError("no file is expected")

    def read(self, path: str, *, most_bytes: int) -> bytes:
        raise AssertionError("no file is expected")

    def fresh(self) -> Sandbox:
        raise AssertionError("no fresh sandbox is expected")

    def leading_to(self, server: Address) -> AbstractContextManager[Address]:
        raise AssertionError("no way out is expected")

    def interrupt(self) -> None:
        pass

    def readmit(self) -> None:
        pass

    def close(self) -> None:
        pass


class SandboxesOfNothing:
    def open(self, needs: SandboxNeeds) -> OpenSandbox:
        return SandboxOfNothing()


class OrchestratorForAgents:
    """The orchestrator's side of the agent server's contract, over real HTTP."""

    def __init__(self) -> None:
        self.registrations: queue.Queue[AgentServer] = queue.Queue()
        self.heartbeats: queue.Queue[Heartbeat] = queue.Queue()
        self.results: queue.Queue[Result] = queue.Queue()
        self.farewells: queue.Queue[Farewell] = queue.Queue()
        self.stop: tuple[Lease, ...] = ()
        self.parked: tuple[Lease, ...] = ()
        self.drained = False
        self.published = 0
        self.known = True
        self.refuse_results: list[RollyardError] = []
        """Raised for the next results, in order."""
        self.asked_for_more: list[bool] = []
        """Whether each result, in order, came with a request for the next job."""
        self.loads: list[int] = []
        """How many results came together, each time."""
        self.stale: set[str] = set()
        """Jobs whose Lease was lost."""
        self.assignments: list[Assignment] = []
        """Given out with the answers to results, in order."""

    def app(self) -> Flask:
        app = new_app("fake orchestrator")

        @app.post("/servers")
        def register() -> Answer:
            self.registrations.put(read(AgentServer))
            self.known = True
            return reply(Registered(published=self.published))

        @app.post("/heartbeats")
        def heartbeat() -> Answer:
            self.heartbeats.put(read(Heartbeat))
            return reply(
                HeartbeatReply(
                    known=self.known,
                    stop=self.stop,
                    parked=self.parked,
                    drained=self.drained,
                    published=self.published,
                )
            )

        @app.post("/results")
        def result() -> Answer:
            if self.refuse_results:
                raise self.refuse_results.pop(0)
            load = read(list[Result])
            self.loads.append(len(load))
            return reply([self._take(result) for result in load])

        @app.post("/servers/leave")
        def leave() -> Answer:
            self.farewells.put(read(Farewell))
            return reply(Accepted())

        return app

    def _take(self, result: Result) -> Reported:
        self.asked_for_more.append(request.args.get("more") is not None)
        if result.lease.job_id in self.stale:
            return Reported(receipt=Receipt.STALE)
        self.results.put(result)
        more = self.assignments.pop(0) if self.assignments else None
        return Reported(receipt=Receipt.ACCEPTED, assignment=more)

    def result(self) -> Result:
        """The next Result that arrives."""
        return self.results.get(timeout=PATIENCE_SECONDS)
