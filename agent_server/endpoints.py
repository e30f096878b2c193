"""What each LLM server turned out to be: the dialect that it speaks and the logprobs it reports.

- A server is asked at its first use, in one dialect after the other, for a few tokens; and again
  after it was away.
- The kind of logprobs is measured, since no answer names it.
"""

import threading
from collections.abc import Sequence

import msgspec

from agent_server.control.stop import StopSignal
from agent_server.exchange import Exchange, unusable
from llm_servers.dialects.protocol import LLMDialect
from llm_servers.generation import LLMBroken, TurnRequest
from llm_servers.responses import UncheckedResponse
from rollyard.logprobs import are_logprobs
from rollyard.messages import LLMEndpoint, LogprobKind, Sampling

_SECONDS = 10.0
"""Time for an answer, the first of which a server needs to load whatever it loads lazily."""
_CERTAIN = -1e-4
"""The logprob of a certain token is 0."""
_CERTAINLY = Sampling(top_p=1e-6)
"""Only the most likely token is in the nucleus."""
_COLD = Sampling(temperature=0.01)
"""The most likely token has nearly all of the probability."""


class Endpoint(msgspec.Struct, frozen=True):
    """An LLM server as it answered."""

    url: str
    dialect: LLMDialect
    logprobs: LogprobKind
    version: int
    """Weight version that it told; 0 if it tells none."""
    model: str = ""
    """What requests have to name so that they get the policy; empty if nothing."""

    @property
    def why_not_used(self) -> str:
        """The reason why no Job can depend on the server; empty if Jobs can."""
        remedy = self.dialect.remedies.get(self.logprobs)
        if remedy is None:
            return ""
        return (
            f"the LLM server at {self.url} reports logprobs of another distribution than the one "
            f"it samples from: {remedy}"
        )


class Endpoints:
    """Owns what is known of the LLM servers. Safe to share between threads: several that need an
    unknown server at once each ask it."""

    def __init__(self, exchange: Exchange, dialects: Sequence[LLMDialect]) -> None:
        self._exchange = exchange
        self._dialects = dialects
        self._lock = threading.Lock()
        self._known: dict[str, Endpoint] = {}

    def of(self, server: str, stop: StopSignal) -> Endpoint:
        """What the server is. Raises `Stopped`, `Unanswered` if it does not say, and `LLMBroken` if
        it speaks no dialect."""
        with self._lock:
            known = self._known.get(server)
        if known is None:
            known = self._find(server, stop)
            with self._lock:
                self._known[server] = known
        return known

    def forget(self, server: str) -> None:
        """Ask the server again before its next use: another may have taken its place."""
        with self._lock:
            self._known.pop(server, None)

    def known(self) -> tuple[LLMEndpoint, ...]:
        """The servers that were found out about."""
        with self._lock:
            found = sorted(self._known.items())
        return tuple(
            LLMEndpoint(url=server, dialect=each.dialect.name, logprobs=each.logprobs)
            for server, each in found
        )

    def _find(self, server: str, stop: StopSignal) -> Endpoint:
        refusals = []
        for dialect in self._dialects:
            try:
                certain = self._ask(server, dialect, _CERTAINLY, stop)
            except LLMBroken as error:
                refusals.append(f"{dialect.name}: {error.message}")
                continue
            kind = self._kind(server, dialect, certain, stop)
            model = self._exchange.model_name(server) if dialect.names_model else ""
            return Endpoint(server, dialect, kind, certain.newest_version, model)
        raise LLMBroken(
            f"the LLM server at {server} takes token ids in no known form ({'; '.join(refusals)})",
            fix="start vLLM with --enable-scale-out, or name a server that speaks one of these",
        )

    def _kind(
        self, server: str, dialect: LLMDialect, certain: UncheckedResponse, stop: StopSignal
    ) -> LogprobKind:
        truncated = _logprobs(server, certain)
        if min(truncated) > _CERTAIN:
            return LogprobKind.SAMPLED
        cold = _logprobs(server, self._ask(server, dialect, _COLD, stop))
        # The same tokens again, but for ties. A temperature multiplies what sets them apart.
        return LogprobKind.TEMPERED if sum(cold) > 0.1 * sum(truncated) else LogprobKind.MODEL

    def _ask(
        self, server: str, dialect: LLMDialect, sampling: Sampling, stop: StopSignal
    ) -> UncheckedResponse:
        request = TurnRequest(
            trajectory="probe",
            group="probe",
            token_ids=(0,),
            sampling=sampling,
            max_tokens=4,
            stop_token_ids=(),
        )
        answer = self._exchange.ask(server, dialect, request, stop, _SECONDS)
        stop.check()
        return answer


def _logprobs(server: str, answer: UncheckedResponse) -> tuple[float, ...]:
    """The logprobs of an answer. Raises `LLMBroken` if there are none, or some are no numbers."""
    given = answer.logprobs
    if not given or len(given) != len(answer.token_ids) or not are_logprobs(given):
        tokens = len(answer.token_ids)
        raise unusable(server, LLMBroken(f"it gave no finite logprob for each of {tokens} tokens"))
    return given
