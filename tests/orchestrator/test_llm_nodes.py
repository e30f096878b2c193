"""The orchestrator over several LLM nodes: new weights for all, one answer from all."""

from array import array
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from flask import Flask, Response

from orchestrator.llm_nodes import LLMNodes
from orchestrator.queues import Queues
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable, RollyardError
from rollyard.messages import LLMNode, ScoreRequest, Scores, WeightReport, WeightUpdate
from serving.api import new_app, reply
from tests.serving_threads import read, served

PAUSES = {"a": 3.0, "b": 7.0, "c": 5.0}
UPDATE = WeightUpdate(path="/checkpoint", version=8)


class Nodes:
    """LLM nodes without LLM servers; what they refuse an update with."""

    def __init__(self) -> None:
        self.refuses: dict[str, RollyardError] = {}
        self.published_when_told: list[int] = []
        self.queues: Queues

    def app(self, name: str) -> Flask:
        app = new_app(name)

        @app.post("/weights")
        def update() -> Response:
            wanted = read(WeightUpdate)
            self.published_when_told.append(self.queues.weights.version())
            if name in self.refuses:
                raise self.refuses[name]
            return reply(
                WeightReport(
                    version=wanted.version, servers=(f"llm-{name}",), paused_seconds=PAUSES[name]
                )
            )

        @app.post("/score")
        def score() -> Response:
            tokens = read(ScoreRequest).token_ids
            return reply(Scores(logprobs={f"llm-{name}": array("f", [-1.0] * len(tokens))}))

        return app


@pytest.fixture
def nodes(queues: Queues) -> Iterator[Nodes]:
    nodes = Nodes()
    nodes.queues = queues
    with ExitStack() as apps:
        for name in PAUSES:
            url = apps.enter_context(served(nodes.app(name)))
            queues.weights.heartbeat(
                LLMNode(node_id=name, url=url, servers=(), model="/models/tiny", serves=0)
            )
        yield nodes


def test_scores_come_from_every_server_of_every_node(queues: Queues, nodes: Nodes) -> None:
    scores = LLMNodes(queues.weights, queues.epochs).score(
        ScoreRequest(token_ids=array("i", [1, 2]))
    )
    assert sorted(scores.logprobs) == ["llm-a", "llm-b", "llm-c"]


def test_an_update_reaches_every_node_and_reports_the_longest_pause(
    queues: Queues, nodes: Nodes
) -> None:
    report = LLMNodes(queues.weights, queues.epochs).update(UPDATE)
    assert report.servers == ("llm-a", "llm-b", "llm-c")
    assert (report.version, report.paused_seconds) == (8, 7.0)
    assert not queues.connection.ask(queues.weights.serving()).unready


def test_weights_that_the_trainer_put_on_itself_have_a_version_and_no_path(
    queues: Queues, nodes: Nodes
) -> None:
    labelled = LLMNodes(queues.weights, queues.epochs).update(WeightUpdate(path="", version=8))
    assert labelled.servers == ("llm-a", "llm-b", "llm-c")
    late = LLMNode(node_id="a", url="http://x", servers=(), model="none", serves=0)
    told = LLMNodes(queues.weights, queues.epochs).heartbeat(late).published
    assert told == WeightUpdate(path="", version=8)


def test_an_update_is_written_down_before_any_node_hears_of_it(
    queues: Queues, nodes: Nodes
) -> None:
    LLMNodes(queues.weights, queues.epochs).update(UPDATE)
    assert nodes.published_when_told == [8, 8, 8]


def test_the_version_is_the_highest_that_was_ever_published(queues: Queues, nodes: Nodes) -> None:
    llm_nodes = LLMNodes(queues.weights, queues.epochs)
    llm_nodes.update(UPDATE)
    for name in PAUSES:  # all of them begin anew
        node = LLMNode(node_id=name, url="http://x", servers=(), model="none", serves=0)
        assert llm_nodes.heartbeat(node).published == UPDATE
    assert llm_nodes.weight_version().version == 8


def test_an_update_that_failed_on_one_node_is_brought_to_it_later(
    queues: Queues, nodes: Nodes
) -> None:
    nodes.refuses["b"] = LLMUnavailable("a server is away")
    with pytest.raises(LLMUnavailable, match="a server is away"):
        LLMNodes(queues.weights, queues.epochs).update(UPDATE)
    assert sorted(queues.connection.ask(queues.weights.serving()).unready) == ["a", "b", "c"]
    late = LLMNode(node_id="b", url="http://x", servers=(), model="none", serves=0)
    assert LLMNodes(queues.weights, queues.epochs).heartbeat(late).published == UPDATE


def test_an_update_that_every_node_refuses_leaves_the_version_free(
    queues: Queues, nodes: Nodes
) -> None:
    nodes.refuses = {name: InvalidMessage("no checkpoint there") for name in PAUSES}
    with pytest.raises(InvalidMessage, match="no checkpoint there"):
        LLMNodes(queues.weights, queues.epochs).update(UPDATE)
    assert queues.weights.version() == 0
    nodes.refuses = {}
    elsewhere = WeightUpdate(path="/elsewhere", version=8)
    assert (
        LLMNodes(queues.weights, queues.epochs).update(elsewhere).version
        == queues.weights.version()
        == 8
    )


def test_an_update_that_some_node_took_keeps_its_version(queues: Queues, nodes: Nodes) -> None:
    nodes.refuses = {"a": InvalidMessage("no checkpoint there")}
    with pytest.raises(InvalidMessage):
        LLMNodes(queues.weights, queues.epochs).update(UPDATE)
    assert queues.weights.version() == 8
    with pytest.raises(Conflict, match="weight version 8 does not rise: 8 was published"):
        LLMNodes(queues.weights, queues.epochs).update(WeightUpdate(path="/elsewhere", version=8))


def test_an_update_may_be_repeated(queues: Queues, nodes: Nodes) -> None:
    first = LLMNodes(queues.weights, queues.epochs).update(UPDATE)
    assert LLMNodes(queues.weights, queues.epochs).update(UPDATE) == first


def test_a_node_that_is_gone_is_named(queues: Queues) -> None:
    queues.weights.heartbeat(
        LLMNode(node_id="d", url="http://127.0.0.1:9", servers=(), model="none", serves=0)
    )
    with pytest.raises(LLMUnavailable, match="LLM node 'd'"):
        LLMNodes(queues.weights, queues.epochs).update(UPDATE)


def test_a_version_is_not_told_before_a_node_has_said_what_it_knows(queues: Queues) -> None:
    """The queues may have forgotten everything: a trainer would use a version again."""
    with pytest.raises(LLMUnavailable, match="no LLM node has registered"):
        LLMNodes(queues.weights, queues.epochs).weight_version()
