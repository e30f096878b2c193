"""The orchestrator over several LLM nodes: new weights for all, one answer from all."""

from array import array
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from flask import Flask, Response

from orchestrator.llm_nodes import LLMNodes
from orchestrator.queues.redis_queues import Queues
from rollyard.errors import LLMUnavailable, QueueUnavailable
from rollyard.messages import (
    LLMNode,
    ScoreRequest,
    Scores,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from serving.api import new_app, read, reply
from tests.queue_fixtures import QueueMaker
from tests.serving_threads import served

VERSIONS = {"a": 3, "b": 7, "c": 5}


def node_app(name: str) -> Flask:
    app = new_app(name)

    @app.get("/weights")
    def version() -> Response:
        return reply(WeightVersion(version=VERSIONS[name]))

    @app.post("/weights")
    def update() -> Response:
        wanted = read(WeightUpdate)
        seconds = float(VERSIONS[name])
        return reply(
            WeightReport(version=wanted.version, servers=(f"llm-{name}",), paused_seconds=seconds)
        )

    @app.post("/score")
    def score() -> Response:
        tokens = read(ScoreRequest).token_ids
        return reply(Scores(logprobs={f"llm-{name}": array("f", [-1.0] * len(tokens))}))

    return app


@pytest.fixture
def queues(make_queues: QueueMaker) -> Iterator[Queues]:
    yard = make_queues(Queues)
    with ExitStack() as apps:
        for name in VERSIONS:
            url = apps.enter_context(served(node_app(name)))
            node = LLMNode(node_id=name, url=url, servers=(f"llm-{name}",), model="/models/tiny")
            yard.register_llm_node(node)
        yield yard


def test_the_version_is_the_highest_that_any_node_serves(queues: Queues) -> None:
    assert LLMNodes(queues).version().version == 7


def test_scores_come_from_every_server_of_every_node(queues: Queues) -> None:
    scores = LLMNodes(queues).score(ScoreRequest(token_ids=array("i", [1, 2])))
    assert sorted(scores.logprobs) == ["llm-a", "llm-b", "llm-c"]


def test_an_update_reaches_every_node_and_reports_the_longest_pause(queues: Queues) -> None:
    report = LLMNodes(queues).update(WeightUpdate(path="/checkpoint", version=8))
    assert report.servers == ("llm-a", "llm-b", "llm-c")
    assert (report.version, report.paused_seconds) == (8, 7.0)


def test_jobs_begin_under_the_version_that_was_loaded_last(queues: Queues) -> None:
    LLMNodes(queues).update(WeightUpdate(path="/checkpoint", version=8))
    assert queues.weights() == 8


def test_an_update_that_could_not_be_noted_is_not_done(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked repeats it; a Batch requested meanwhile would count ages from old weights."""
    update = WeightUpdate(path="/checkpoint", version=8)

    def fail(version: int) -> None:
        raise QueueUnavailable("Redis is away")

    with monkeypatch.context() as away:
        away.setattr(queues, "set_weights", fail)
        with pytest.raises(QueueUnavailable):
            LLMNodes(queues).update(update)
    assert LLMNodes(queues).update(update).version == queues.weights() == 8


def test_a_node_that_registers_tells_what_is_served(queues: Queues) -> None:
    """All of them may have begun anew, with weights older than those last heard of."""
    queues.set_weights(57)
    LLMNodes(queues).register(queues.llm_nodes()[0])
    assert queues.weights() == 7


def test_a_node_registers_though_another_is_gone(queues: Queues) -> None:
    queues.set_weights(6)
    gone = LLMNode(node_id="d", url="http://127.0.0.1:9", servers=(), model="/models/tiny")
    LLMNodes(queues).register(gone)
    assert [node.node_id for node in queues.llm_nodes()] == ["a", "b", "c", "d"]
    assert queues.weights() == 6


def test_a_node_that_is_gone_is_named(queues: Queues) -> None:
    queues.register_llm_node(
        LLMNode(node_id="d", url="http://127.0.0.1:9", servers=(), model="/models/tiny")
    )
    with pytest.raises(LLMUnavailable, match="LLM node 'd'"):
        LLMNodes(queues).version()
