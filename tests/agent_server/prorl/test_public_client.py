"""A client that knows the public contract alone, and 64 of its calls at once."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
from tokenizers import Tokenizer

from tests.agent_server.prorl.client import ProrlClient, row
from tests.agent_server.prorl.conftest import Overheard
from tests.agent_server.prorl.door_process import DoorProcess
from tests.agent_server.sandbox.test_leaving_nothing import remains
from tests.llm_fixtures import POLICY
from tests.waiting import until

CALLS = 64
SLOTS = CALLS + 10
"""Some are kept free: those of the abandoned calls, and for the orchestrator."""

NOTHING_READY = ("--warm-sandboxes", "0")
TOKENIZER = Tokenizer.from_file(str(POLICY / "tokenizer.json"))

Call = tuple[dict[str, Any], "Future[requests.Response]"]


@pytest.fixture
def home(own_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the agent server has its sandboxes."""
    monkeypatch.setenv("TMPDIR", str(own_tmp))
    return own_tmp


@pytest.fixture
def client(home: Path, door: DoorProcess, overheard: Overheard) -> Iterator[ProrlClient]:
    """A client of the open door of an agent server; its LLM server is overheard."""
    yield door.start(overheard.url, slots=SLOTS)
    overheard.answers.set()


def rows() -> list[dict[str, Any]]:
    """Every third one expects a wrong answer: the policy fails there."""
    return [
        row(f"{n}*3", str(n * 3 + (n % 3 == 0)), instance_id=f"row-{n}", trajectory_id=n % 8)
        for n in range(10, 10 + CALLS)
    ]


def begin_all(client: ProrlClient) -> list[Call]:
    return [(each, client.begin(each, job_id=f"job of {each['instance_id']}")) for each in rows()]


def check(result: dict[str, Any], asked: dict[str, Any], heard: Overheard) -> None:
    """Find out by itself whether the result is right."""
    messages = result["messages"]
    answer = messages[-1]["content"]
    assert (result["instance_id"], result["trajectory_id"]) == (
        asked["instance_id"],
        asked["trajectory_id"],
    )
    right = answer == asked["answer"]
    assert (result["score"], result["resolved"]) == (float(right), right)
    assert (result["success"], result["critical_error"], result["filter"]) == (True, None, False)
    so_far: list[int] = []
    for message in messages:
        ids = message["token_ids"]
        assert message["content"] in TOKENIZER.decode(ids, skip_special_tokens=False)
        if message["role"] == "assistant":
            assert message["input_ids"] == so_far
            turn = heard.turns.index((so_far, ids))
            assert message["logprobs"] == pytest.approx(heard.logprobs[turn])
        so_far += ids
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]


def test_of_many_calls_at_once_each_is_answered_rightly_whatever_happens_to_others(
    client: ProrlClient, overheard: Overheard
) -> None:
    overheard.answers.clear()
    calls = begin_all(client)
    with ExitStack() as callers:
        for number in range(8):
            callers.enter_context(client.calling(row(instance_id=f"abandoned-{number}")))
        until("all are there", lambda: client.jobs() == CALLS + 8)
        left_at = time.monotonic()
    until("the abandoned have ended", lambda: client.jobs() == CALLS)
    print(f"8 abandoned jobs had ended after {time.monotonic() - left_at:.2f} s")
    for asked, call in calls[::8]:
        assert client.post("/cancel", job_id=f"job of {asked['instance_id']}").status_code == 200
        assert call.result().status_code == 409
    overheard.answers.set()
    scores = set()
    for number, (asked, call) in enumerate(calls):
        if number % 8:
            result = call.result().json()
            check(result, asked, overheard)
            scores.add(result["score"])
    assert scores == {0.0, 1.0}
    assert client.jobs() == 0


def test_what_a_killed_server_had_is_sent_again_and_nothing_survives_the_doors_end(
    client: ProrlClient, door: DoorProcess, overheard: Overheard, home: Path
) -> None:
    overheard.answers.clear()
    lost = begin_all(client)
    until("half of them run", lambda: client.status().json()["run"] >= CALLS // 2)
    assert door.process is not None
    door.process.kill()
    for _, call in lost:
        assert isinstance(call.exception(), requests.RequestException)
    until("nothing of the killed server is left", lambda: not remains(home))
    overheard.answers.set()
    door.start(overheard.url, slots=SLOTS, options=NOTHING_READY)
    overheard.answers.clear()
    without_jobs = remains(home)
    calls = begin_all(client)
    until("all of them run", lambda: client.status().json()["run"] == CALLS)
    assert len(remains(home)) >= len(without_jobs) + CALLS
    said = client.post("/stop").json()
    assert (len(said["ended"]), said["ending"]) == (CALLS, [])
    for _, call in calls:
        assert call.result().status_code == 503
    until("its sandboxes are gone", lambda: remains(home) == without_jobs)
    client.post("/start")
    overheard.answers.set()
    for asked, call in begin_all(client):
        check(call.result().json(), asked, overheard)
