"""An agent's view of the LLM servers: one `TurnRequest` in, one `Generation` out.

- A Turn is sent again only as a whole, under a new request id, and only when no whole answer came.
- Servers come and go: a Turn ends where it began, and the next one begins on a server that is left.
- Each server is asked in the dialect that it speaks.
- Somebody may hear the tokens as they come. Once some were told, the Turn cannot be sent again: a
  failure is one of the Job.
- Where a server tells no weight versions, the version published last counts, marked as assumed.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.endpoints import Endpoints
from agent_server.exchange import Away, Exchange, RequestRefused, UnknownDialect, unusable
from agent_server.readiness import Readiness
from agent_server.routing import LLMRoutes
from llm_servers.dialects import DIALECTS
from llm_servers.dialects.protocol import LLMDialect
from llm_servers.generation import Generation, LLMBroken, TurnRequest, Unanswered, Unlabelled
from llm_servers.responses import checked
from rollyard.backoff import Backoff
from rollyard.errors import LLMUnavailable
from rollyard.messages import LLMEndpoint, LLMServersToAsk


class LLMSettings(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...]
    shares: Mapping[str, int] = MappingProxyType({})
    """Number of LLM servers behind a proxy, by its URL."""
    tokens: Mapping[str, str] = MappingProxyType({})
    """The token to show to a server, by its URL: none to any other."""
    followed_token: str = ""
    """The token to show to servers that are followed."""
    retry: Backoff = Backoff(first_seconds=0.2, max_seconds=2.0, total_seconds=20.0)
    """Retries of a Turn, counted from its first failure."""
    weights: Backoff = Backoff(first_seconds=0.2, max_seconds=2.0, total_seconds=600.0)
    """Retries while a server that started again has no published weights: they may be large."""
    connect_seconds: float = 5.0
    answer_seconds: float = 3600.0
    """The longest that any Turn may take, whatever the Job's limits allow."""
    abort_seconds: float = 5.0
    """Time for an aborted request to answer with what it has, and the longest pause in an answer
    that has begun."""


class BrokenOff(LLMUnavailable):
    """The end of a response of which somebody has heard a part, and nobody can give the rest."""


class _Heard:
    """What somebody has heard of one response, which cannot be taken back."""

    def __init__(self, hear: Callable[[Sequence[int]], None]) -> None:
        self.tokens = 0
        self._hear = hear

    def hear(self, token_ids: Sequence[int]) -> None:
        if token_ids:
            self.tokens += len(token_ids)
            self._hear(token_ids)

    def check(self, why: str) -> None:
        """Raise `BrokenOff` if the response cannot be sampled anew."""
        if self.tokens:
            raise BrokenOff(f"a response broke off after {self.tokens} tokens: {why}")


class LLMClient:
    """All LLM servers of this agent server. Safe to share between threads."""

    def __init__(self, settings: LLMSettings, dialects: Sequence[LLMDialect] = DIALECTS) -> None:
        self._settings = settings
        self._routes = LLMRoutes(settings.servers, shares=settings.shares)
        self._tokens = dict(settings.tokens)
        self._exchange = Exchange(settings.connect_seconds, settings.abort_seconds, self._tokens)
        self._endpoints = Endpoints(self._exchange, dialects)
        self._readiness = Readiness(settings.servers, self._endpoints, self._tokens)
        self._followed: set[str] = set()
        self._published = 0
        """Weight version published last, as far as anybody told."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        """One response; finish reason `abort` when it was stopped in the middle of it, unless it
        was cancelled.

        Raises `Stopped`, or `LLMUnavailable` when no server gives a usable answer: `Unlabelled`
        when the last one that was asked still has no published weights, and `BrokenOff` when one
        failed in the middle of a response that somebody heard.
        """
        if request.hear is None:
            return self._generate(request, stop)
        heard = _Heard(request.hear)
        try:
            generation = self._generate(
                msgspec.structs.replace(request, hear=heard.hear), stop, heard
            )
        except Stopped as stopped:
            if stopped.reason is StopReason.PARKED:
                heard.check("its tokens were lost when it was to be parked")
            raise
        heard.hear(generation.token_ids[heard.tokens :])
        return generation

    def _generate(
        self, request: TurnRequest, stop: StopSignal, heard: "_Heard | None" = None
    ) -> Generation:
        """One response, from whichever server gives it."""
        patience = {Unanswered: self._settings.retry, Unlabelled: self._settings.weights}
        delays = {failure: retries.delays() for failure, retries in patience.items()}
        while True:
            stop.check()
            server = self._routes.server_of(request.trajectory, request.group)
            try:
                if server is None:
                    raise Unanswered("there are no LLM servers")
                return self._try(server, request, stop)
            except Unanswered as error:
                if heard is not None:
                    heard.check(error.message)
                if server is not None:
                    self._routes.move(request.trajectory, request.group, failed=server)
                if stop.reason is StopReason.PARKED:  # asked again later, with all its retries
                    raise Stopped(StopReason.PARKED) from error
                failure = Unlabelled if isinstance(error, Unlabelled) else Unanswered
                delay = next(delays[failure], None)  # the first call starts the clock
                if delay is None:
                    seconds = patience[failure].total_seconds
                    raise failure(
                        f"no answer from the LLM servers for {seconds:g} s; at last: {error}",
                        fix="their logs say why",
                    ) from error
            stop.wait(delay)

    def add(self, url: str) -> None:
        """Use the LLM server at `url`, too; one that is used already is not changed."""
        self._readiness.add(url)
        self._routes.add(url)

    def follow(self, proxies: Mapping[str, int], servers: Collection[str] = ()) -> None:
        """Use these proxies, too, which are given with the numbers of their LLM servers, and these
        servers, and no longer what was followed before and is not among them. Call from one
        thread."""
        given = self._settings.servers
        announced = {url: share for url, share in proxies.items() if url not in given}
        others = set(servers).difference(given, announced)
        gone = self._followed - announced.keys() - others
        self._add_proxies(announced, self._settings.followed_token)
        for url in others:
            self.add(url)
        self._followed = {*announced, *others}
        self._keep(set(self._routes.load) - gone)
        for url in gone:
            self._exchange.under_way.hang_up(url)

    def clear(self) -> None:
        """Use none of the LLM servers for any further Turn; Turns under way end where they are."""
        self._keep(())

    def ask_these(self, servers: LLMServersToAsk, token: str) -> None:
        """Use these proxies, which are shown the token, and no other server for any further Turn.
        Turns under way end where they are, but for those on servers that are gone: they begin again
        on one of these."""
        self._add_proxies(servers.proxies, token)
        self._keep(servers.proxies)
        for url in servers.gone:
            self._exchange.under_way.hang_up(url)

    def _add_proxies(self, proxies: Mapping[str, int], token: str) -> None:
        self._tokens |= dict.fromkeys(proxies, token)
        for url, share in proxies.items():
            self._readiness.add(url)
            self._routes.add(url, share)

    def _keep(self, servers: Collection[str]) -> None:
        self._routes.keep(servers)
        self._readiness.keep(servers)

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and response together that every server takes."""
        return self._readiness.context_tokens

    def endpoints(self) -> tuple[LLMEndpoint, ...]:
        """The LLM servers that have answered, and how they are asked."""
        return self._endpoints.known()

    def learn(self, published: int) -> None:
        """Note the weight version that was published last; versions never fall."""
        self._published = max(self._published, published)

    def release(self, trajectory: str) -> None:
        """Forget a trajectory that has ended: it is no load any more."""
        self._routes.release(trajectory)

    def why_not_ready(self) -> str:
        """The reason why Jobs cannot depend on all LLM servers; empty if they can."""
        return self._readiness.why_not_ready()

    def close(self) -> None:
        self._readiness.close()
        self._exchange.close()

    def _try(self, server: str, request: TurnRequest, stop: StopSignal) -> Generation:
        endpoint = self._endpoints.of(server, stop)
        if endpoint.why_not_used:
            self._endpoints.forget(server)
            raise LLMBroken(endpoint.why_not_used)
        self.learn(endpoint.version)
        published, seconds = self._published, self._answer_seconds(request)
        request = msgspec.structs.replace(request, model=endpoint.model)
        try:
            answer = self._exchange.ask(server, endpoint.dialect, request, stop, seconds)
        except (Away, RequestRefused) as error:
            self._endpoints.forget(server)
            if isinstance(error, UnknownDialect):  # it spoke it before: another has its place
                raise Unanswered(error.message) from error
            raise
        self.learn(answer.newest_version)
        try:
            generation = checked(answer, request, published=published, logprobs=endpoint.logprobs)
        except LLMUnavailable as error:
            raise unusable(server, error) from error
        if generation.finish_reason == "abort" and stop.reason is None:
            raise Unanswered(f"the LLM server at {server} gave the request up")
        if not generation.token_ids:
            stop.check()
        return generation

    def _answer_seconds(self, request: TurnRequest) -> float:
        """Time to wait for an answer. It exceeds the Job's time by more than the end of a request
        takes, which finds out that a server hangs."""
        left = max(0.0, request.until - time.monotonic())
        return min(self._settings.answer_seconds, left + 3 * self._settings.abort_seconds)
