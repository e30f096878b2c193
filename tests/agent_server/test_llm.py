"""The LLM client against the stand-in server: whole turns, aborts, and what is tried again."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
import requests
from flask import Flask

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.llm import BrokenOff, LLMClient, LLMSettings
from agent_server.routing import choose
from launch.free_ports import free_port
from llm_servers.generation import LLMBroken, TurnRequest, Unlabelled
from rollyard.backoff import Backoff
from rollyard.errors import LLMUnavailable
from rollyard.messages import ChatMessage, Limits, LLMServersToAsk, Outcome, Sampling
from tests.agent_server.fakes import PATIENCE_SECONDS, assign, make_job
from tests.agent_server.running import ECHO, Start
from tests.llm_fixtures import StartScriptedLLM, label
from tests.serving_threads import served
from tests.waiting import until

QUICK = Backoff(first_seconds=0.05, max_seconds=0.1, total_seconds=0.5)

Connect = Callable[..., LLMClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[LLMClient] = []

    def make(*servers: str, **changes: Any) -> LLMClient:
        usual: dict[str, Any] = {"retry": QUICK, "abort_seconds": 5.0}
        settings = LLMSettings(servers=servers, **(usual | changes))
        clients.append(LLMClient(settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


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


def fault(llm: str, kind: str, times: int = 1) -> None:
    body = {"kind": kind, "times": times, "route": "/inference/v1/generate"}
    requests.post(f"{llm}/script/faults", json=body, timeout=5).raise_for_status()


def tokens_drawn(llm: str) -> int:
    lines = requests.get(f"{llm}/metrics", timeout=5).text.splitlines()
    return sum(int(line.split()[1]) for line in lines if "generation_tokens_total" in line)


def groups_at_home_on(server: str, servers: Sequence[str]) -> Iterator[str]:
    names = (f"g{number}" for number in itertools.count())
    return (name for name in names if choose(name, dict.fromkeys(servers, 0)) == server)


def stop_after(seconds: float, reason: StopReason) -> StopSignal:
    stop = StopSignal()
    threading.Timer(seconds, stop.stop, [reason]).start()
    return stop


def test_tokens_in_tokens_out(
    connect: Connect, llm: str, turn: TurnRequest, template: ChatTemplate
) -> None:
    generation = connect(llm).generate(turn, StopSignal())
    assert template.text(generation.token_ids) == "<tool_call>37*48</tool_call>"
    assert generation.finish_reason == "stop"
    assert generation.token_ids[-1] == template.end_token_id
    assert [(span.start, span.end) for span in generation.weight_spans] == [
        (0, len(generation.token_ids))
    ]


@pytest.mark.parametrize("kind", ["error_500", "truncated_json"])
def test_half_an_answer_is_asked_for_again(
    connect: Connect, llm: str, turn: TurnRequest, kind: str
) -> None:
    fault(llm, kind)
    assert connect(llm).generate(turn, StopSignal()).finish_reason == "stop"


def test_a_response_that_broke_off_is_not_sampled_anew_for_whoever_heard_a_part(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    heard: list[int] = []
    client, heard_turn = connect(llm), msgspec.structs.replace(turn, hear=heard.extend)
    assert client.why_not_ready() == ""
    fault(llm, "error_500")  # nobody has heard anything of this one
    said = client.generate(heard_turn, StopSignal())
    assert tuple(heard) == said.token_ids
    heard.clear()
    fault(llm, "truncated_json")
    with pytest.raises(BrokenOff, match=r"broke off after \d+ tokens"):
        client.generate(heard_turn, StopSignal())
    assert heard


def test_retries_are_bounded(connect: Connect, llm: str, turn: TurnRequest) -> None:
    fault(llm, "error_500", times=1000)
    with pytest.raises(LLMUnavailable, match=r"no answer .* for 0.5 s; at last: .* 500"):
        connect(llm).generate(turn, StopSignal())


def test_a_server_that_is_down_is_named(connect: Connect, turn: TurnRequest) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(LLMUnavailable, match=url):
        connect(url).generate(turn, StopSignal())


def test_a_trajectory_moves_away_from_a_server_that_is_down(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    client = connect(f"http://127.0.0.1:{free_port()}", llm)
    assert client.generate(turn, StopSignal()).finish_reason == "stop"


def test_the_members_of_a_group_are_asked_of_the_server_that_has_their_prompt(
    connect: Connect, start_scripted_llm: StartScriptedLLM, turn: TurnRequest
) -> None:
    servers = (start_scripted_llm("--tool-rate", "1"), start_scripted_llm("--tool-rate", "1"))
    agents = connect(*servers), connect(*reversed(servers))
    asked: list[tuple[int, ...]] = []
    # In turn, as a server that was given more than the other would be spared.
    homes = {server: groups_at_home_on(server, servers) for server in servers}
    groups = [next(homes[server]) for _ in range(6) for server in servers]
    for group in groups:
        before = [tokens_drawn(server) for server in servers]
        for member in range(4):
            mine = msgspec.structs.replace(turn, trajectory=f"{group}/{member}", group=group)
            agents[member % 2].generate(mine, StopSignal())
            agents[member % 2].release(mine.trajectory)
        after = [tokens_drawn(server) for server in servers]
        asked.append(tuple(i for i in range(2) if after[i] > before[i]))
    assert asked == 6 * [(0,), (1,)]


def test_a_server_that_comes_is_asked_and_known_by_its_context(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    client = connect()
    assert client.why_not_ready() == "there are no LLM servers"
    for _ in range(2):
        client.add(llm)
    assert client.why_not_ready() == ""
    assert client.context_tokens == 2048
    assert client.generate(turn, StopSignal()).finish_reason == "stop"


def test_proxies_are_used_while_they_are_announced(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    client = connect()
    client.follow({gone: 2})
    assert gone in client.why_not_ready()
    client.follow({llm: 1})
    assert client.why_not_ready() == ""
    assert client.generate(turn, StopSignal()).finish_reason == "stop"
    client.follow({})
    assert client.why_not_ready() == "there are no LLM servers"
    own = connect(llm)
    own.follow({llm: 4})
    own.follow({})
    assert own.why_not_ready() == ""


def test_llm_servers_of_a_trainer_are_used_while_they_are_announced(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    client = connect()
    client.follow({}, [llm])
    assert client.generate(turn, StopSignal()).finish_reason == "stop"
    client.follow({}, [])
    assert client.why_not_ready() == "there are no LLM servers"
    own = connect(llm)
    own.follow({}, [llm])
    own.follow({}, [])
    assert own.why_not_ready() == ""


def test_a_turn_ends_on_the_server_that_was_cleared_meanwhile(
    connect: Connect, slow_llm: str, turn: TurnRequest, template: ChatTemplate
) -> None:
    client = connect(slow_llm)
    before = tokens_drawn(slow_llm)

    def clear_once_it_talks() -> None:
        until("a token was drawn", lambda: tokens_drawn(slow_llm) > before)
        client.clear()

    clearing = threading.Thread(target=clear_once_it_talks)
    clearing.start()
    generation = client.generate(turn, StopSignal())
    clearing.join()
    assert template.text(generation.token_ids) == "<tool_call>37*48</tool_call>"


def test_who_is_to_ask_another_server_asks_it_for_the_next_turn_of_the_same_trajectory(
    connect: Connect, start_scripted_llm: StartScriptedLLM, turn: TurnRequest
) -> None:
    first, second = start_scripted_llm("--tool-rate", "1"), start_scripted_llm("--tool-rate", "1")
    client = connect(first)
    client.generate(turn, StopSignal())
    before = tokens_drawn(first), tokens_drawn(second)
    client.ask_these(LLMServersToAsk(proxies={second: 1}), token="")
    assert client.why_not_ready() == ""
    client.generate(turn, StopSignal())
    assert tokens_drawn(first) == before[0]
    assert tokens_drawn(second) > before[1]
    assert [endpoint.url for endpoint in client.endpoints()] == [second]


def test_a_turn_ends_where_it_is_though_another_server_is_to_be_asked(
    connect: Connect, slow_llm: str, llm: str, turn: TurnRequest, template: ChatTemplate
) -> None:
    client = connect(slow_llm)
    before = tokens_drawn(slow_llm), tokens_drawn(llm)

    def change_once_it_talks() -> None:
        until("a token was drawn", lambda: tokens_drawn(slow_llm) > before[0])
        client.ask_these(LLMServersToAsk(proxies={llm: 1}), token="")

    changing = threading.Thread(target=change_once_it_talks)
    changing.start()
    generation = client.generate(turn, StopSignal())
    changing.join()
    assert template.text(generation.token_ids) == "<tool_call>37*48</tool_call>"
    assert tokens_drawn(llm) == before[1]


def test_a_turn_on_a_server_that_is_gone_begins_again_on_another(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    """A machine that was switched off closes no connection."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        gone.settimeout(PATIENCE_SECONDS)
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
        client, said = connect(url), list[str]()
        waiting = threading.Thread(
            target=lambda: said.append(client.generate(turn, StopSignal()).finish_reason)
        )
        waiting.start()
        call, _ = gone.accept()
        with call:
            call.settimeout(PATIENCE_SECONDS)
            assert call.recv(65536)
            client.ask_these(LLMServersToAsk(proxies={llm: 1}, gone=(url,)), token="")
            call.setblocking(False)
            assert call.recv(1) == b"", "it was hung up on at once"
            waiting.join(PATIENCE_SECONDS)
            assert said == ["stop"]


def test_without_servers_a_turn_waits_for_one_to_come(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    client = connect(llm)
    assert client.why_not_ready() == ""
    client.clear()
    assert client.context_tokens == 2048
    with pytest.raises(LLMUnavailable, match="there are no LLM servers"):
        client.generate(turn, StopSignal())
    threading.Timer(0.1, client.add, [llm]).start()
    assert client.generate(turn, StopSignal()).finish_reason == "stop"


@pytest.mark.parametrize("kind", ["nan_logprobs", "floor_logprobs", "missing_logprob"])
def test_a_wrong_answer_is_not_asked_for_again(
    connect: Connect, llm: str, turn: TurnRequest, kind: str
) -> None:
    fault(llm, kind)
    client = connect(llm)
    with pytest.raises(LLMBroken, match="unusable answer"):
        client.generate(turn, StopSignal())
    assert client.generate(turn, StopSignal()).finish_reason == "stop"


def test_a_refused_request_says_why(connect: Connect, llm: str, turn: TurnRequest) -> None:
    request = TurnRequest(
        trajectory="t",
        group="g",
        token_ids=[1] * 100_000,
        sampling=Sampling(),
        max_tokens=4,
        stop_token_ids=turn.stop_token_ids,
    )
    with pytest.raises(LLMBroken, match="refused a request with 400"):
        connect(llm).generate(request, StopSignal())


def test_time_that_runs_out_keeps_the_tokens_so_far(
    connect: Connect, slow_llm: str, turn: TurnRequest
) -> None:
    client = connect(slow_llm)
    assert client.why_not_ready() == ""
    generation = client.generate(turn, stop_after(0.7, StopReason.OUT_OF_TIME))
    assert generation.finish_reason == "abort"
    assert 0 < len(generation.token_ids) < 8


def test_a_request_that_is_to_be_parked_keeps_its_tokens_so_far(
    connect: Connect, slow_llm: str, turn: TurnRequest, template: ChatTemplate
) -> None:
    client = connect(slow_llm)
    assert client.why_not_ready() == ""
    said = client.generate(turn, stop_after(0.7, StopReason.PARKED))
    assert said.finish_reason == "abort"
    assert 0 < len(said.token_ids) < 7
    whole = said.followed_by(client.generate(turn.after(said), StopSignal()))
    assert template.text(whole.token_ids) == "<tool_call>37*48</tool_call>"


@pytest.mark.parametrize("kind", ["hang", "error_500"])
def test_a_server_that_fails_while_a_job_is_parked_costs_the_response_alone(
    connect: Connect, llm: str, turn: TurnRequest, kind: str
) -> None:
    fault(llm, kind)
    client = connect(llm, retry=Backoff(first_seconds=60, total_seconds=60), abort_seconds=0.3)
    with pytest.raises(Stopped) as stopped:
        client.generate(turn, stop_after(0.2, StopReason.PARKED))
    assert stopped.value.reason is StopReason.PARKED
    assert client.generate(turn, StopSignal()).finish_reason == "stop"


def test_a_parked_job_outlives_the_patience_with_a_server_that_hangs(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    fault(llm, "hang")
    none_left = Backoff(total_seconds=0.0)
    with pytest.raises(Stopped) as stopped:
        connect(llm, retry=none_left, abort_seconds=0.3).generate(
            turn, stop_after(0.2, StopReason.PARKED)
        )
    assert stopped.value.reason is StopReason.PARKED


def test_weights_older_than_the_trajectorys_do_not_go_on_with_it(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    ahead = msgspec.structs.replace(turn, min_version=1)
    with pytest.raises(LLMUnavailable, match="weight version 0 comes after version 1"):
        connect(llm).generate(ahead, StopSignal())


def test_a_server_that_started_again_is_waited_for_until_it_has_its_weights(
    connect: Connect, unlabelled_llm: str, turn: TurnRequest
) -> None:
    client = connect(unlabelled_llm, weights=Backoff(total_seconds=60))
    threading.Timer(1.0, label, [unlabelled_llm, 5]).start()  # later than any failure is borne
    spans = client.generate(turn, StopSignal()).weight_spans
    assert [span.version for span in spans] == [5]


def test_a_trajectory_moves_away_from_a_server_that_started_again(
    connect: Connect, unlabelled_llm: str, llm: str, turn: TurnRequest
) -> None:
    client = connect(unlabelled_llm, llm, weights=Backoff(first_seconds=0.1, total_seconds=60))
    spans = client.generate(turn, StopSignal()).weight_spans
    assert [span.version for span in spans] == [0]


def test_the_wait_for_weights_has_an_end(
    connect: Connect, unlabelled_llm: str, turn: TurnRequest
) -> None:
    with pytest.raises(Unlabelled, match=r"for 0\.5 s; at last: .* no version yet"):
        connect(unlabelled_llm, weights=QUICK).generate(turn, StopSignal())


def test_a_cancelled_request_ends_on_the_server_too(
    connect: Connect, slow_llm: str, turn: TurnRequest
) -> None:
    began = time.monotonic()
    with pytest.raises(Stopped):
        connect(slow_llm).generate(turn, stop_after(0.3, StopReason.CANCELLED))
    assert time.monotonic() - began < 2


def test_a_server_that_hangs_cannot_hold_a_cancelled_job(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    fault(llm, "hang")
    began = time.monotonic()
    with pytest.raises(Stopped):
        connect(llm).generate(turn, stop_after(0.2, StopReason.CANCELLED))
    assert time.monotonic() - began < 2


def test_a_call_that_was_abandoned_to_a_server_that_hangs_ends_with_its_jobs_time(
    start: Start, connect: Connect
) -> None:
    limits = Limits(max_turns=1, max_tokens=400, job_seconds=2)
    assignment = assign(make_job(instance=ECHO, limits=limits))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_SECONDS)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        running = start(connect(url, abort_seconds=0.2))
        running.runner.accept(assignment)
        call, _ = silent.accept()
        running.runner.cancel(assignment.lease)
        assert running.result().outcome is Outcome.CANCELLED
        with call:
            call.settimeout(PATIENCE_SECONDS)
            while call.recv(65536):
                pass  # and then the caller hangs up


def test_an_attempt_has_one_thread_also_while_it_waits_for_an_llm_server(
    start: Start, connect: Connect
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_SECONDS)
        before = set(threading.enumerate())
        running = start(connect(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        running.runner.accept(assign(make_job(instance=ECHO)))
        call, _ = silent.accept()
        with call:
            begun = set(threading.enumerate()) - before
            assert {thread.name for thread in begun} == {"alarms", "job-1-a1"}


def test_a_server_that_hangs_is_not_the_policys_slowness(
    connect: Connect, llm: str, turn: TurnRequest
) -> None:
    fault(llm, "hang")
    with pytest.raises(LLMUnavailable, match="hangs"):
        connect(llm, abort_seconds=0.3).generate(turn, stop_after(0.2, StopReason.OUT_OF_TIME))


def test_a_stop_ends_the_retries(connect: Connect, turn: TurnRequest) -> None:
    client = connect(f"http://127.0.0.1:{free_port()}", retry=Backoff(total_seconds=60))
    began = time.monotonic()
    with pytest.raises(Stopped):
        client.generate(turn, stop_after(0.2, StopReason.CANCELLED))
    assert time.monotonic() - began < 2


def test_readiness_names_the_server_that_does_not_answer(connect: Connect, llm: str) -> None:
    client = connect(llm)
    assert client.why_not_ready() == ""
    assert client.context_tokens == 2048
    down = f"http://127.0.0.1:{free_port()}"
    assert down in connect(llm, down).why_not_ready()


def test_a_server_that_tells_other_logprobs_than_those_it_samples_by_is_not_ready(
    connect: Connect, llm: str
) -> None:
    client = connect(llm)
    fault(llm, "raw_logprobs", times=2)
    told = client.why_not_ready()
    assert llm in told
    assert "--logprobs-mode processed_logprobs" in told
    assert client.why_not_ready() == ""


@pytest.mark.parametrize("kind", ["error_500", "truncated_json"])
def test_a_server_that_answers_no_request_is_not_ready(
    connect: Connect, llm: str, kind: str
) -> None:
    client = connect(llm)
    fault(llm, kind)
    assert "does not answer a request" in client.why_not_ready()
    assert client.why_not_ready() == ""


def test_an_abort_that_came_before_its_request_is_asked_for_again(
    connect: Connect, turn: TurnRequest
) -> None:
    """A server forgets an abort for a request that it does not know yet."""
    app, stop, asked = Flask("late"), StopSignal(), threading.Semaphore(0)

    @app.post("/inference/v1/generate")
    def generate() -> tuple[str, int]:
        stop.stop(StopReason.PARKED)
        both = asked.acquire(timeout=4) and asked.acquire(timeout=4)
        return "aborted", 500 if both else 400

    @app.post("/inference/v1/abort_requests")
    def abort() -> str:
        asked.release()
        return "{}"

    with served(app) as url, pytest.raises(Stopped) as stopped:
        connect(url).generate(turn, stop)
    assert stopped.value.reason is StopReason.PARKED
