"""Sessions: one attempt's conversations with its policy, whoever leads them.

- Owns the traces of the attempt. What its policy sampled is recorded before the client is told of
  it; a request whose client hung up leaves nothing.
- Requests may come at once, from any thread. Each ends with the attempt, with the session, and with
  its client.
- Whoever is out of time hears of it when the session ends: what its agent made of the news until it
  is killed would be rewarded by chance.
- The first failure that is not a client's ends the session: whatever comes after it was made by an
  agent that had seen the machine fail, and is worth no reward.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import TracebackType

import msgspec

from agent_server.agents.protocol import Task
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.environments.protocol import EnvironmentFailed
from agent_server.gateway.exchange import (
    Completion,
    ContextExceeded,
    Hearer,
    Inquiry,
    SessionOver,
    ToldResponse,
    TooManyRequests,
    TurnsExhausted,
)
from agent_server.gateway.reading import ResponseReader
from agent_server.gateway.traces import Place, Traces
from agent_server.gateway.unfolding import Unfolding
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import DeadlineExceeded, InvalidMessage, RollyardError
from rollyard.messages import TokenArray, Trajectory

MAX_AT_ONCE = 64
"""Limit on the responses that a session waits for at once."""
_END_SECONDS = 20.0
"""Time for stopped requests to end: an LLM server may have to be asked twice to abort one."""


class NeverAsked(EnvironmentFailed):
    """The end of an agent that did not ask its policy for a single response."""


class GatewaySession:
    def __init__(
        self, task: Task, stop: StopSignal, url: str, forget: Callable[[str], None]
    ) -> None:
        self.url = url
        """URL under which the gateway's routes are found, `/v1/...`, on this machine."""
        self.key = f"sk-{secrets.token_urlsafe(32)}"
        """Key of the session's requests, which opens nothing once the session is over."""
        self._task = task
        self._stop = stop
        self._forget = forget
        self._over = StopSignal()
        self._changed = threading.Condition()
        self._awaited = 0
        self._failure: Exception | None = None
        self._refused = False
        """True if a limit refused the last request."""
        self._traces = Traces(task.template)
        self._reader = ResponseReader(task.template)

    def __enter__(self) -> "GatewaySession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def respond(
        self, inquiry: Inquiry, gone: StopSignal, listener: Hearer | None = None
    ) -> Completion:
        """Sample the responses to an inquiry, until its client is `gone`. Raises `RollyardError`;
        one of the status 4xx is the client's to mend, and no failure."""
        with self._awaiting(inquiry.choices), self._failing(), self._stopping(gone) as stop:
            with self._changed:
                place = self._traces.place(inquiry.messages, inquiry.tools)
                prompt = place.prompt()
                request = self._request(inquiry, prompt)
            unfoldings = self._unfoldings(inquiry, prompt, listener)
            generations = self._generate(_requests(request, unfoldings, listener), stop)
            with self._changed:
                choices = [
                    self._record(inquiry, place, generation, unfolding)
                    for generation, unfolding in zip(generations, unfoldings, strict=True)
                ]
                self._refused = False
        if any(choice.finish_reason == "abort" for choice in choices):
            raise self._refusal()
        return Completion(choices=tuple(choices), prompt_tokens=len(prompt))

    def count(self, inquiry: Inquiry) -> int:
        """The tokens of the prompt that this inquiry would have. Raises `RollyardError`."""
        with self._awaiting(0), self._failing(), self._changed:
            return len(self._traces.place(inquiry.messages, inquiry.tools).prompt())

    def trajectory(self, *, truncated: bool) -> Trajectory:
        """Everything that was sampled so far; truncated also where a limit ended the last trace.

        Raises the failure that ended the session, and `NeverAsked` or `DeadlineExceeded` where
        nothing was sampled.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            last = self._traces.last
            if last is None:
                raise self._without_response()
            cut = self._refused or last.generation.finish_reason != "stop"
            return self._traces.trajectory(truncated=truncated or cut)

    def close(self) -> None:
        """Let the key die, stop the requests under way, and wait for their end."""
        self._forget(self.key)
        self._over.stop(StopReason.CANCELLED)
        with self._changed:
            self._changed.wait_for(lambda: self._awaited == 0, _END_SECONDS)

    @contextmanager
    def _awaiting(self, choices: int) -> Iterator[None]:
        """Count these responses among those that are waited for."""
        if self._failure is None and (self._over.reason or self._stop.reason):
            raise self._refusal()
        with self._changed:
            self._admit(choices)
            self._awaited += choices
        try:
            yield
        finally:
            with self._changed:
                self._awaited -= choices
                self._changed.notify_all()

    def _admit(self, choices: int) -> None:
        if self._failure is not None:
            raise self._failure
        most = self._task.job.limits.max_turns
        if len(self._traces) + self._awaited + choices > most:
            self._refused = True
            raise TurnsExhausted(
                f"the job's limit of {most} turns is reached", fix="end with what there is"
            )
        if self._awaited + choices > MAX_AT_ONCE:
            raise TooManyRequests(
                f"the session waits for {self._awaited} responses, and {MAX_AT_ONCE} at once are "
                "the most",
                fix="ask again when one of them is there",
            )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Note the first failure that is none of the client's."""
        try:
            yield
        except Stopped as stopped:
            raise self._refusal() from stopped
        except Exception as error:
            with self._changed:
                if isinstance(error, ContextExceeded):
                    self._refused = True
                elif not isinstance(error, InvalidMessage) and self._failure is None:
                    self._failure = error
            raise

    @contextmanager
    def _stopping(self, gone: StopSignal) -> Iterator[StopSignal]:
        """Yield the signal that ends a request with its attempt, its session or its client."""
        stop = StopSignal()
        with self._stop.giving(stop), self._over.giving(stop), gone.giving(stop):
            yield stop

    def _refusal(self) -> SessionOver:
        """The refusal of what is asked, or under way, when the attempt or the session is over."""
        if self._stop.reason is StopReason.OUT_OF_TIME:
            self._over.wait(_END_SECONDS)
        return SessionOver("the job has ended, or its time is over")

    def _request(self, inquiry: Inquiry, prompt: TokenArray) -> TurnRequest:
        job = self._task.job
        room = job.limits.max_tokens - len(prompt)
        if room <= 0:
            raise ContextExceeded(
                f"the conversation has {len(prompt)} tokens, and the job's limit is "
                f"{job.limits.max_tokens} for it and a response together",
                fix="go on with a shorter one",
            )
        wanted = room if inquiry.max_tokens is None else inquiry.max_tokens
        return TurnRequest(
            trajectory=self._task.name,
            group=f"{job.run_id}/{job.group_id}",
            token_ids=prompt,
            sampling=job.sampling,
            max_tokens=min(job.sampling.max_response_tokens, room, wanted),
            stop_token_ids=self._task.template.stop_token_ids,
            min_version=self._traces.version,
        )

    def _generate(self, requests: list[TurnRequest], stop: StopSignal) -> list[Generation]:
        generate = partial(self._task.policy.generate, stop=stop)
        if len(requests) == 1:
            return [generate(requests[0])]
        with ThreadPoolExecutor(len(requests), thread_name_prefix=self._task.name) as together:
            return list(together.map(generate, requests))

    def _unfoldings(
        self, inquiry: Inquiry, prompt: TokenArray, listener: Hearer | None
    ) -> list[Unfolding | None]:
        """The responses before their first tokens, for whoever listens."""
        if listener is None:
            return [None] * inquiry.choices
        listener.begin(len(prompt))
        return [self._reader.unfolding(inquiry, prompt) for _ in range(inquiry.choices)]

    def _record(
        self,
        inquiry: Inquiry,
        place: Place,
        generation: Generation,
        unfolding: Unfolding | None,
    ) -> ToldResponse:
        message, choice = self._reader.read(inquiry, place.prompt(), generation)
        if unfolding is not None:
            choice = unfolding.told(choice)
        self._traces.add(place, generation, message, choice.told())
        return choice

    def _without_response(self) -> RollyardError:
        if self._stop.reason is StopReason.OUT_OF_TIME:
            seconds = self._task.job.limits.job_seconds
            return DeadlineExceeded(
                f"the policy did not give one response in {seconds:g} s",
                fix="the agent is slow to ask, or the LLM servers are slow or shared by too many",
            )
        return NeverAsked(
            "the agent ended without asking its policy for a response",
            fix="let it ask the URL and the key of its session; its output says why it did not",
        )


def _requests(
    request: TurnRequest, unfoldings: Sequence[Unfolding | None], listener: Hearer | None
) -> list[TurnRequest]:
    """One request for each response, whose listener hears it unfold."""

    def hearing(choice: int, unfolding: Unfolding, listener: Hearer) -> TurnRequest:
        def hear(token_ids: Sequence[int]) -> None:
            if piece := unfolding.hear(token_ids):
                listener.hear(choice, piece)

        return msgspec.structs.replace(request, hear=hear)

    return [
        request if unfolding is None or listener is None else hearing(choice, unfolding, listener)
        for choice, unfolding in enumerate(unfoldings)
    ]
