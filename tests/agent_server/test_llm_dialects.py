"""One contract for every dialect, kept by stand-ins of each and by both routes of a real vLLM."""

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
import requests
from flask import Flask

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.llm import LLMClient, LLMSettings
from launch.free_ports import free_port
from llm_servers.dialects import DIALECTS
from llm_servers.generation import Generation, LLMBroken, TurnRequest
from llm_servers.scripted.app import create_app
from llm_servers.scripted.engine import ScriptedEngine
from llm_servers.scripted.script import Script, ScriptSettings, Vocabulary
from llm_servers.server import LLMServer
from rollyard.backoff import Backoff
from rollyard.errors import LLMUnavailable
from rollyard.messages import ChatMessage, LLMEndpoint, LogprobKind, Sampling
from tests.llm_fixtures import POLICY, label
from tests.serving_threads import served

pytestmark = pytest.mark.timeout(360)  # the first test with vLLM waits for it to start

DEADLINE_SECONDS = 60.0
QUICK = Backoff(first_seconds=0.05, max_seconds=0.1, total_seconds=5.0)
ENDLESS = 1500

KINDS = {
    "vllm-tokens": LogprobKind.SAMPLED,
    "vllm-completions": LogprobKind.SAMPLED,
    "sglang": LogprobKind.TEMPERED,
    "prorl": LogprobKind.SAMPLED,
}
"""Dialect -> the logprobs that its stand-in reports; ProRL's contract does not say which."""
STAND_INS = {
    "scripted-tokens": "vllm",
    "scripted-completions": "vllm-completions",
    "scripted-sglang": "sglang",
    "scripted-prorl": "prorl",
}
"""Name of the case -> what is stood in for."""
DIALECT = {
    "scripted-tokens": "vllm-tokens",
    "scripted-completions": "vllm-completions",
    "scripted-sglang": "sglang",
    "scripted-prorl": "prorl",
    "vllm-tokens": "vllm-tokens",
    "vllm-completions": "vllm-completions",
}
"""Name of the case -> the dialect that is spoken."""
CASES = tuple(DIALECT)
ROUTES = {
    "scripted-tokens": "/inference/v1/generate",
    "scripted-completions": "/v1/completions",
    "scripted-sglang": "/generate",
    "scripted-prorl": "/generate",
}


class StandIns:
    """Stand-ins that always call the tool and take a moment for each token, one of a kind."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._urls: dict[str, str] = {}

    def __call__(self, kind: str) -> str:
        """The URL of the only one of this kind."""
        if kind not in self._urls:
            self._urls[kind] = self._held.enter_context(stand_in(kind))
        return self._urls[kind]


@contextmanager
def stand_in(kind: str, port: int = 0) -> Iterator[str]:
    """The URL of a new one."""
    script = Script(Vocabulary.load(POLICY), ScriptSettings(tool_rate=1))
    engine = ScriptedEngine(POLICY, token_seconds=0.005)
    with served(create_app(script, engine, 2048, kind), port) as url:
        label(url, 0)
        yield url


@pytest.fixture(scope="module")
def stand_ins() -> Iterator[StandIns]:
    with ExitStack() as held:
        yield StandIns(held)


class Speaker:
    """A client of one LLM server, which it asks in one dialect."""

    def __init__(self, case: str, url: str, scorer: str) -> None:
        self.url = url
        self.dialect = DIALECT[case]
        self.is_real = case not in STAND_INS
        # A stand-in knows its own dialect alone; vLLM is made to seem so.
        known = [each for each in DIALECTS if not self.is_real or each.name == self.dialect]
        self.client = LLMClient(LLMSettings(servers=(url,), retry=QUICK), known)
        self.scorer = LLMServer(scorer)

    def generate(self, turn: TurnRequest) -> Generation:
        return self.client.generate(turn, StopSignal())

    def metric(self, name: str) -> float:
        lines = requests.get(f"{self.url}/metrics", timeout=DEADLINE_SECONDS).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline, never = time.monotonic() + DEADLINE_SECONDS, threading.Event()
        while not condition():
            assert time.monotonic() < deadline
            never.wait(0.005)

    def stop_in_the_middle(self, reason: StopReason) -> StopSignal:
        """A signal that is given once some tokens of the next response are drawn."""
        assert self.client.why_not_ready() == ""
        drawn, stop = "vllm:generation_tokens_total", StopSignal()
        before = self.metric(drawn)

        def give() -> None:
            self.wait(lambda: self.metric(drawn) > before + 3)
            stop.stop(reason)

        threading.Thread(target=give, daemon=True).start()
        return stop

    def await_idle(self) -> None:
        self.wait(lambda: self.metric("vllm:num_requests_running") == 0)

    def close(self) -> None:
        self.client.close()
        self.scorer.close()


@contextmanager
def speaking(request: pytest.FixtureRequest, stand_ins: StandIns) -> Iterator[Speaker]:
    case = request.param
    if case in STAND_INS:
        made = Speaker(case, stand_ins(STAND_INS[case]), scorer=stand_ins("vllm"))
    else:
        url = request.getfixturevalue("vllm_llm")
        made = Speaker(case, url, scorer=url)
    yield made
    made.close()


@pytest.fixture(params=CASES)
def speaker(request: pytest.FixtureRequest, stand_ins: StandIns) -> Iterator[Speaker]:
    with speaking(request, stand_ins) as made:
        yield made


@pytest.fixture(params=[case for case in CASES if case != "scripted-prorl"])
def aborting(request: pytest.FixtureRequest, stand_ins: StandIns) -> Iterator[Speaker]:
    """A server whose requests can be aborted."""
    with speaking(request, stand_ins) as made:
        yield made


@pytest.fixture
def hanging(stand_ins: StandIns) -> Iterator[Speaker]:
    """A server that cannot abort requests, and that answers the next one only after the test."""
    made = Speaker("scripted-prorl", stand_ins("prorl"), scorer=stand_ins("vllm"))
    assert made.client.why_not_ready() == ""
    fault(made.url, "/generate", "hang")
    yield made
    fault(made.url, "/generate", "hang", times=0)
    made.close()


@pytest.fixture
def turn(template: ChatTemplate) -> TurnRequest:
    return TurnRequest(
        trajectory="t",
        group="g",
        token_ids=template.prompt([ChatMessage(role="user", content="37*48")]),
        sampling=Sampling(),
        max_tokens=64,
        stop_token_ids=template.stop_token_ids,
    )


def fault(url: str, route: str, kind: str, times: int = 1) -> None:
    body = {"kind": kind, "times": times, "route": route}
    requests.post(f"{url}/script/faults", json=body, timeout=5).raise_for_status()


def stop_soon(reason: StopReason) -> StopSignal:
    stop = StopSignal()
    threading.Timer(0.1, stop.stop, [reason]).start()
    return stop


def endless(turn: TurnRequest) -> TurnRequest:
    return msgspec.structs.replace(turn, stop_token_ids=(), max_tokens=ENDLESS)


def test_the_dialect_is_found_by_asking(speaker: Speaker) -> None:
    assert speaker.client.endpoints() == ()
    assert speaker.client.why_not_ready() == ""
    assert speaker.client.endpoints() == (
        LLMEndpoint(url=speaker.url, dialect=speaker.dialect, logprobs=KINDS[speaker.dialect]),
    )


def test_every_token_comes_with_the_logprob_that_the_weights_give(
    speaker: Speaker, turn: TurnRequest
) -> None:
    said = speaker.generate(turn)
    assert said.finish_reason in ("stop", "length")
    assert 0 < len(said.token_ids) <= turn.max_tokens
    scores = speaker.scorer.score(array("i", [*turn.token_ids, *said.token_ids]))
    assert list(scores[len(turn.token_ids) :]) == pytest.approx(said.logprobs, abs=1e-3)
    assert [(span.start, span.end) for span in said.weight_spans] == [(0, len(said.token_ids))]


def test_the_kind_of_the_logprobs_is_recorded(speaker: Speaker, turn: TurnRequest) -> None:
    sampling = Sampling(temperature=0.5, top_p=1e-6)
    said = speaker.generate(msgspec.structs.replace(turn, sampling=sampling))
    assert {span.logprobs for span in said.weight_spans} == {KINDS[speaker.dialect]}
    is_truncated = KINDS[speaker.dialect] is LogprobKind.SAMPLED
    assert (min(said.logprobs) == pytest.approx(0.0, abs=1e-6)) == is_truncated


def test_a_response_out_of_tokens_ends_with_length(speaker: Speaker, turn: TurnRequest) -> None:
    said = speaker.generate(msgspec.structs.replace(turn, max_tokens=3))
    assert said.finish_reason == "length"
    assert len(said.token_ids) == 3


def test_a_response_ends_with_the_first_token_that_ends_one(
    speaker: Speaker, turn: TurnRequest
) -> None:
    greedy = msgspec.structs.replace(turn, sampling=Sampling(temperature=0.0))
    whole = speaker.generate(greedy).token_ids
    assert whole[-1] in turn.stop_token_ids
    stops = (whole[1], *turn.stop_token_ids)
    said = speaker.generate(msgspec.structs.replace(greedy, stop_token_ids=stops))
    assert said.token_ids == whole[: whole.index(whole[1]) + 1]
    assert len(said.logprobs) == len(said.token_ids)
    assert said.finish_reason == "stop"


@pytest.mark.parametrize("kind", ["sglang", "prorl"])
def test_a_response_that_another_token_ended_is_not_used(
    stand_ins: StandIns, turn: TurnRequest, kind: str
) -> None:
    speaker = Speaker(f"scripted-{kind}", stand_ins(kind), scorer=stand_ins("vllm"))
    with pytest.raises(LLMBroken, match="its last token is none of those that end a response"):
        speaker.generate(msgspec.structs.replace(turn, stop_token_ids=(5,)))
    speaker.close()


def test_a_version_that_is_not_told_is_assumed_and_marked(
    speaker: Speaker, turn: TurnRequest
) -> None:
    served_version = speaker.scorer.version() or 0
    speaker.client.learn(served_version + 7)
    (span,) = speaker.generate(turn).weight_spans
    told = speaker.dialect == "vllm-tokens"
    # SGLang tells that of the end alone, which is older than what was published last.
    expected = served_version + (0 if told or speaker.dialect == "sglang" else 7)
    assert (span.version, span.assumed) == (expected, not told)


def test_a_version_is_told_where_a_response_began_and_ended_under_it(
    stand_ins: StandIns, turn: TurnRequest
) -> None:
    speaker = Speaker("scripted-sglang", stand_ins("sglang"), scorer=stand_ins("vllm"))
    try:
        label(speaker.url, 3)
        spans = [speaker.generate(turn).weight_spans[0]]
        label(speaker.url, 5)  # within the next response, for all that the client knows
        spans += [speaker.generate(turn).weight_spans[0] for _ in range(2)]
    finally:
        label(speaker.url, 0)
        speaker.close()
    assert [(span.version, span.assumed) for span in spans] == [(3, False), (3, True), (5, False)]


def test_an_assumed_version_is_never_older_than_the_trajectorys(
    stand_ins: StandIns, turn: TurnRequest
) -> None:
    speaker = Speaker("scripted-prorl", stand_ins("prorl"), scorer=stand_ins("vllm"))
    (span,) = speaker.generate(msgspec.structs.replace(turn, min_version=3)).weight_spans
    assert (span.version, span.assumed) == (3, True)
    speaker.close()


def test_a_response_that_is_to_be_parked_keeps_its_tokens_and_goes_on(
    aborting: Speaker, turn: TurnRequest
) -> None:
    stop = aborting.stop_in_the_middle(StopReason.PARKED)
    said = aborting.client.generate(endless(turn), stop)
    assert said.finish_reason == "abort"
    assert 0 < len(said.token_ids) < ENDLESS
    rest = msgspec.structs.replace(endless(turn).after(said), max_tokens=2)
    whole = said.followed_by(aborting.generate(rest))
    assert len(whole.logprobs) == len(whole.token_ids) == len(said.token_ids) + 2
    assert [(span.start, span.end) for span in whole.weight_spans] == [(0, len(whole.token_ids))]


def test_whoever_waits_for_the_tokens_hears_each_once(speaker: Speaker, turn: TurnRequest) -> None:
    heard: list[tuple[int, ...]] = []
    said = speaker.generate(
        msgspec.structs.replace(turn, hear=lambda ids: heard.append(tuple(ids)))
    )
    assert tuple(token for part in heard for token in part) == said.token_ids
    assert speaker.dialect != "vllm-tokens" or len(heard) > 1
    scores = speaker.scorer.score(array("i", [*turn.token_ids, *said.token_ids]))
    assert list(scores[len(turn.token_ids) :]) == pytest.approx(said.logprobs, abs=1e-3)


def test_a_response_that_is_heard_keeps_its_tokens_when_it_is_to_be_parked(
    aborting: Speaker, turn: TurnRequest
) -> None:
    heard: list[int] = []
    stop = aborting.stop_in_the_middle(StopReason.PARKED)
    said = aborting.client.generate(msgspec.structs.replace(endless(turn), hear=heard.extend), stop)
    assert said.finish_reason == "abort"
    assert 0 < len(said.token_ids) < ENDLESS
    assert tuple(heard) == said.token_ids


def test_a_cancelled_response_that_is_heard_ends_on_the_server(
    aborting: Speaker, turn: TurnRequest
) -> None:
    stop = aborting.stop_in_the_middle(StopReason.CANCELLED)
    with pytest.raises(Stopped):
        aborting.client.generate(msgspec.structs.replace(endless(turn), hear=lambda _: None), stop)
    aborting.await_idle()


def test_a_cancelled_request_ends_on_the_server(aborting: Speaker, turn: TurnRequest) -> None:
    with pytest.raises(Stopped):
        aborting.client.generate(endless(turn), aborting.stop_in_the_middle(StopReason.CANCELLED))
    aborting.await_idle()


@pytest.mark.parametrize("reason", [StopReason.PARKED, StopReason.OUT_OF_TIME])
def test_a_server_that_cannot_abort_is_hung_up_on(
    hanging: Speaker, turn: TurnRequest, reason: StopReason
) -> None:
    with pytest.raises(Stopped) as stopped:
        hanging.client.generate(turn, stop_soon(reason))
    assert stopped.value.reason is reason


def test_a_server_that_cannot_abort_and_fails_is_not_the_policys_slowness(
    hanging: Speaker, turn: TurnRequest
) -> None:
    fault(hanging.url, "/health", "error_500")
    with pytest.raises(LLMUnavailable, match="hangs: it does not say whether it works"):
        hanging.client.generate(turn, stop_soon(StopReason.OUT_OF_TIME))


def test_a_prompt_that_is_too_long_is_refused(speaker: Speaker, turn: TurnRequest) -> None:
    too_long = msgspec.structs.replace(turn, token_ids=[1] * 100_000)
    with pytest.raises(LLMBroken, match="refused a request with 400"):
        speaker.generate(too_long)


@pytest.mark.parametrize("case", STAND_INS)
@pytest.mark.parametrize("kind", ["nan_logprobs", "floor_logprobs", "missing_logprob"])
def test_a_wrong_answer_is_not_used(
    stand_ins: StandIns, turn: TurnRequest, case: str, kind: str
) -> None:
    speaker = Speaker(case, stand_ins(STAND_INS[case]), scorer=stand_ins("vllm"))
    speaker.generate(turn)
    fault(speaker.url, ROUTES[case], kind)
    with pytest.raises(LLMBroken, match="unusable answer"):
        speaker.generate(turn)
    assert speaker.generate(turn).finish_reason == "stop"
    speaker.close()


@pytest.mark.parametrize("case", STAND_INS)
@pytest.mark.parametrize("kind", ["error_500", "truncated_json"])
def test_half_an_answer_is_asked_for_again(
    stand_ins: StandIns, turn: TurnRequest, case: str, kind: str
) -> None:
    speaker = Speaker(case, stand_ins(STAND_INS[case]), scorer=stand_ins("vllm"))
    speaker.generate(turn)
    fault(speaker.url, ROUTES[case], kind)
    assert speaker.generate(turn).finish_reason == "stop"
    assert [each.dialect for each in speaker.client.endpoints()] == [speaker.dialect]
    speaker.close()


@pytest.mark.parametrize(
    ("kind", "told"), [("sglang", "start it without SGLANG_RETURN_ORIGINAL_LOGPROB"), ("prorl", "")]
)
def test_logprobs_of_the_model_are_refused_where_the_server_could_do_better(
    stand_ins: StandIns, kind: str, told: str
) -> None:
    speaker = Speaker(f"scripted-{kind}", stand_ins(kind), scorer=stand_ins("vllm"))
    fault(speaker.url, "/generate", "raw_logprobs", times=4)
    why = speaker.client.why_not_ready()
    fault(speaker.url, "/generate", "raw_logprobs", times=0)
    assert why.endswith(told) if told else why == ""
    kinds = [each.logprobs for each in speaker.client.endpoints()]
    assert kinds == ([] if told else [LogprobKind.MODEL])
    speaker.close()


def test_a_server_is_asked_again_after_it_was_away(turn: TurnRequest) -> None:
    port = free_port()
    client = LLMClient(LLMSettings(servers=(f"http://127.0.0.1:{port}",), retry=QUICK))
    with stand_in("sglang", port):
        client.generate(turn, StopSignal())
    assert client.why_not_ready() != ""
    with stand_in("vllm-completions", port):
        client.generate(turn, StopSignal())
    assert [each.dialect for each in client.endpoints()] == ["vllm-completions"]
    client.close()


@pytest.mark.parametrize("kind", ["vllm-completions", "prorl"])
def test_a_server_that_took_anothers_place_unnoticed_is_asked_again(
    turn: TurnRequest, kind: str
) -> None:
    port = free_port()
    client = LLMClient(LLMSettings(servers=(f"http://127.0.0.1:{port}",), retry=QUICK))
    with stand_in("sglang", port):
        client.generate(turn, StopSignal())
    with stand_in(kind, port):
        if kind == "prorl":  # whose route is the same: only the request looks wrong
            with pytest.raises(LLMBroken, match="refused a request"):
                client.generate(turn, StopSignal())
        assert client.generate(turn, StopSignal()).finish_reason == "stop"
    client.close()


def test_a_server_that_speaks_no_dialect_is_refused_in_one_sentence(turn: TurnRequest) -> None:
    with served(Flask("none")) as url:
        client = LLMClient(LLMSettings(servers=(url,), retry=QUICK))
        with pytest.raises(LLMBroken, match="takes token ids in no known form") as refused:
            client.generate(turn, StopSignal())
        assert all(dialect.name in refused.value.message for dialect in DIALECTS)
        client.close()
