"""The control service as a process: it waits, registers, updates, scores, or says why not."""

import json
import shutil
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from flask import Flask, Response
from werkzeug.serving import make_server

from benchmarks.weights.adapter import random_adapter
from launch.free_ports import free_port
from launch.processes import Started
from llm_servers.contract import GENERATE
from llm_servers.server import LLMServer
from llm_servers.standing import NodeState
from rollyard.errors import (
    Conflict,
    InvalidMessage,
    LLMUnavailable,
    OrchestratorUnavailable,
    Unavailable,
)
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    LLMFarewell,
    LLMNode,
    LLMServerState,
    ScoreRequest,
    Scores,
    ToServe,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from serving.api import new_app, reply
from serving.model_digest import model_digest
from tests.llm_fixtures import (
    POLICY,
    ROOT,
    MortalLLM,
    StartProxy,
    StartScriptedLLM,
    start_module,
    write_weights,
)
from tests.llm_servers.torch_truth import true_logprobs
from tests.serving_threads import read
from tests.waiting import until

REGISTER_SECONDS = 30.0


class OrchestratorForNodes:
    """The one route of the orchestrator that the control service calls."""

    def __init__(self) -> None:
        self.registered = threading.Event()
        self.nodes: list[LLMNode] = []
        self.left: list[str] = []
        self.failures_left = 0
        self.published: WeightUpdate | None = None
        self.app = self._make_app()
        self._server = make_server("127.0.0.1", 0, self.app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def _make_app(self) -> Flask:
        app = new_app("orchestrator")

        @app.post("/llm-nodes")
        def register() -> Response:
            if self.failures_left > 0:
                self.failures_left -= 1
                raise OrchestratorUnavailable("not yet")
            node = read(LLMNode)
            self.nodes.append(node)
            if node.published and node.published.version > _version(self.published):
                self.published = node.published
            self.registered.set()
            return reply(ToServe(published=self.published))

        @app.post("/llm-nodes/leave")
        def leave() -> Response:
            self.left.append(read(LLMFarewell).node_id)
            return reply(Accepted())

        return app


def _version(update: WeightUpdate | None) -> int:
    return update.version if update is not None else 0


class StartNode:
    """Starts control services, and stops them all at the end of the test."""

    def __init__(self, orchestrator: str, directory: Path) -> None:
        self._orchestrator = orchestrator
        self._directory = directory
        self._running: list[Started] = []

    def __call__(
        self,
        *servers: str,
        ready_seconds: float = REGISTER_SECONDS,
        model: Path = POLICY,
        proxy: str = "",
    ) -> Peer:
        port = free_port()
        arguments = [
            *("llm_servers", "--port", str(port), "--model", str(model), "--node-id", "node-a"),
            *("--orchestrator", self._orchestrator, "--ready-seconds", str(ready_seconds)),
            *(word for url in servers for word in ("--server", url)),
            *(("--proxy", proxy) if proxy else ()),
        ]
        self.log = self._directory / f"node-{port}.log"
        self.started = start_module(arguments, self.log)
        self._running.append(self.started)
        return Peer(f"http://127.0.0.1:{port}", name="LLM control service")

    def close(self) -> None:
        for started in self._running:
            started.kill()


@pytest.fixture
def orchestrator() -> Iterator[OrchestratorForNodes]:
    fake = OrchestratorForNodes()
    yield fake
    fake.close()


@pytest.fixture
def start_node(orchestrator: OrchestratorForNodes, tmp_path: Path) -> Iterator[StartNode]:
    start = StartNode(orchestrator.url, tmp_path)
    yield start
    start.close()


def await_registered(orchestrator: OrchestratorForNodes) -> None:
    assert orchestrator.registered.wait(REGISTER_SECONDS), "the node did not register"


def await_ready(node: Peer) -> None:
    """Ready comes after the orchestrator's answer, when the weights are on."""

    def ready() -> bool:
        try:
            return requests.get(f"{node.url}/readyz", timeout=5).ok
        except requests.ConnectionError:
            return False

    until("the node becomes ready", ready)


def await_version(url: str, version: int) -> None:
    until(f"{url} serves version {version}", lambda: LLMServer(url).version() == version)


def readiness(node: Peer) -> str:
    """What /readyz gives as the reason, once the service listens."""
    never = threading.Event()
    for _ in range(200):
        try:
            answer = requests.get(f"{node.url}/readyz", timeout=5)
        except requests.ConnectionError:
            never.wait(0.05)
            continue
        assert answer.status_code == 503
        return str(answer.json()["message"])
    pytest.fail("the control service never listened")


def test_a_node_registers_itself_with_its_servers(
    orchestrator: OrchestratorForNodes, start_node: StartNode, start_scripted_llm: StartScriptedLLM
) -> None:
    servers = (start_scripted_llm(), start_scripted_llm())
    node = start_node(*servers)
    await_registered(orchestrator)
    await_ready(node)
    expected = LLMNode(
        node_id="node-a",
        url=node.url,
        servers=servers,
        model=str(POLICY),
        digest=model_digest(POLICY),
        serves=0,
        states=tuple(LLMServerState(url=url, healthy=True, version=0) for url in servers),
    )
    assert orchestrator.nodes[0] == expected
    state = node.get("/servers", NodeState)
    assert [(s.url, s.healthy, s.paused, s.version) for s in state.servers] == [
        (url, True, False, 0) for url in servers
    ]


def test_a_node_that_is_stopped_says_goodbye_as_its_last_word(
    orchestrator: OrchestratorForNodes, start_node: StartNode, scripted_llm: str
) -> None:
    await_ready(start_node(scripted_llm))
    start_node.started.stop()
    assert orchestrator.left == ["node-a"]


def test_a_node_that_never_registered_has_nothing_to_leave(
    orchestrator: OrchestratorForNodes, start_node: StartNode
) -> None:
    readiness(start_node(f"http://127.0.0.1:{free_port()}"))
    start_node.started.stop()
    assert orchestrator.left == []


def test_registration_is_tried_again_while_the_orchestrator_is_away(
    orchestrator: OrchestratorForNodes, start_node: StartNode, scripted_llm: str
) -> None:
    orchestrator.failures_left = 3
    start_node(scripted_llm)
    await_registered(orchestrator)
    assert orchestrator.failures_left == 0


def test_a_model_with_tied_embeddings_is_sampled_from_and_never_updated(
    orchestrator: OrchestratorForNodes, start_node: StartNode, scripted_llm: str, tmp_path: Path
) -> None:
    """Also not with a checkpoint of untied ones: its head would have no place to go to."""
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    node = start_node(scripted_llm, model=tmp_path)
    await_registered(orchestrator)
    await_ready(node)
    with pytest.raises(InvalidMessage, match="ties its embeddings") as refused:
        node.post("/weights", WeightUpdate(path=str(POLICY), version=1), WeightReport)
    assert "sampling alone needs no change" in refused.value.fix


def test_a_node_is_not_ready_while_a_server_is_missing_and_says_which(
    orchestrator: OrchestratorForNodes, start_node: StartNode
) -> None:
    missing = f"http://127.0.0.1:{free_port()}"
    node = start_node(missing)
    assert f"waiting for the LLM server at {missing} to become healthy" in readiness(node)
    with pytest.raises(Unavailable, match="not ready: waiting for the LLM server"):
        node.post("/weights", WeightUpdate(path=str(POLICY), version=1), WeightReport)
    assert not orchestrator.nodes


def test_a_server_that_never_comes_ends_the_service_with_one_last_sentence(
    start_node: StartNode,
) -> None:
    missing = f"http://127.0.0.1:{free_port()}"
    start_node(missing, ready_seconds=0.5)
    assert start_node.started.process.wait(30) not in (0, None)
    last = start_node.log.read_text().splitlines()[-1]
    assert last == (
        f"the LLM control service stopped: the LLM server at {missing} was not healthy "
        "within 0.5 s; its log says why"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--port", "0"), "port must be in 1..65535"),
        (("--host", "0.0.0.0"), "refusing to listen on 0.0.0.0"),
        (("--node-id", "a b"), "node_id 'a b' is not a valid name"),
        (("--server", "http://h:1/"), "given twice"),
        (("--ready-seconds", "0"), "--ready-seconds must be positive"),
    ],
)
def test_bad_arguments_end_with_one_sentence(arguments: tuple[str, str], problem: str) -> None:
    good = ["--port", "8200", "--server", "http://h:1", "--model", "/m", "--node-id", "a"]
    ended = subprocess.run(
        [sys.executable, "-m", "llm_servers", *good, "--orchestrator", "http://h:2", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    (sentence,) = ended.stderr.splitlines()
    assert problem in sentence


def test_weights_and_scores_pass_through_the_node(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    start_scripted_llm: StartScriptedLLM,
    tmp_path: Path,
) -> None:
    servers = (start_scripted_llm(), start_scripted_llm())
    node = start_node(*servers)
    await_registered(orchestrator)
    await_ready(node)
    tokens = ScoreRequest(token_ids=array("i", [1, 2, 3]))
    old = node.post("/score", tokens, Scores).logprobs
    write_weights(tmp_path, "new")
    report = node.post("/weights", WeightUpdate(path=str(tmp_path), version=4), WeightReport)
    new = node.post("/score", tokens, Scores).logprobs
    assert report.servers == servers
    assert set(old) == set(new) == set(servers)
    assert new[servers[0]] == new[servers[1]] != old[servers[0]]
    assert node.get("/weights", WeightVersion).version == 4
    with pytest.raises(Conflict):
        node.post("/weights", WeightUpdate(path=str(tmp_path), version=3), WeightReport)
    with pytest.raises(InvalidMessage, match="no checkpoint at"):
        node.post("/weights", WeightUpdate(path="/nowhere", version=5), WeightReport)
    with pytest.raises(InvalidMessage, match="no token_ids"):
        node.post("/score", ScoreRequest(token_ids=array("i")), Scores)


def test_a_server_that_nobody_labelled_serves_version_0(
    orchestrator: OrchestratorForNodes, start_node: StartNode, unlabelled_llm: str
) -> None:
    assert LLMServer(unlabelled_llm).version() is None
    await_ready(start_node(unlabelled_llm))
    assert LLMServer(unlabelled_llm).version() == 0


def test_a_node_started_again_goes_on_from_the_version_of_its_servers(
    orchestrator: OrchestratorForNodes, start_node: StartNode, scripted_llm: str, tmp_path: Path
) -> None:
    write_weights(tmp_path, "new")
    LLMServer(scripted_llm).set_version(7)
    LLMServer(scripted_llm).pause()  # an update that ended half-way
    node = start_node(scripted_llm)
    await_registered(orchestrator)
    await_ready(node)
    with pytest.raises(Conflict):
        node.post("/weights", WeightUpdate(path=str(tmp_path), version=7), WeightReport)
    assert LLMServer(scripted_llm).paused()
    node.post("/weights", WeightUpdate(path=str(tmp_path), version=8), WeightReport)
    assert not LLMServer(scripted_llm).paused()


def test_a_server_that_started_again_gets_the_published_weights(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    mortal_llm: MortalLLM,
    scripted_llm: str,
    tmp_path: Path,
) -> None:
    write_weights(tmp_path, "new")
    node = start_node(mortal_llm.url, scripted_llm)
    await_ready(node)
    node.post("/weights", WeightUpdate(path=str(tmp_path), version=5), WeightReport)
    mortal_llm.die()
    mortal_llm.start()
    assert LLMServer(mortal_llm.url).version() in (None, 5)
    await_version(mortal_llm.url, 5)
    tokens = ScoreRequest(token_ids=array("i", [1, 2, 3]))
    scores = node.post("/score", tokens, Scores).logprobs
    assert scores[mortal_llm.url] == scores[scripted_llm]  # the weights, not the label alone
    until("the orchestrator hears of it", lambda: orchestrator.nodes[-1].serves == 5)


def test_a_node_puts_what_was_published_on_servers_that_start_with_it(
    orchestrator: OrchestratorForNodes, start_node: StartNode, unlabelled_llm: str, tmp_path: Path
) -> None:
    write_weights(tmp_path, "new")
    orchestrator.published = WeightUpdate(path=str(tmp_path), version=5)
    await_ready(start_node(unlabelled_llm))
    assert LLMServer(unlabelled_llm).version() == 5
    until("the orchestrator hears of it", lambda: orchestrator.nodes[-1].serves == 5)


def test_a_published_checkpoint_that_is_gone_is_no_reason_for_version_0(
    orchestrator: OrchestratorForNodes, start_node: StartNode, unlabelled_llm: str, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    orchestrator.published = WeightUpdate(path=str(gone), version=5)
    node = start_node(unlabelled_llm)
    await_ready(node)
    sentence = (
        f"no checkpoint at {gone}: there is no such directory; save the weights to a directory "
        "that the LLM servers can read, or publish the weights again, with a higher version"
    )
    assert sentence in requests.get(f"{node.url}/readyz", timeout=5).text
    until("the orchestrator hears of it", lambda: sentence in orchestrator.nodes[-1].trouble)
    assert LLMServer(unlabelled_llm).version() is None
    write_weights(tmp_path, "new")
    node.post("/weights", WeightUpdate(path=str(tmp_path), version=6), WeightReport)
    assert LLMServer(unlabelled_llm).version() == 6
    until("the trouble is over", lambda: orchestrator.nodes[-1].trouble == "")


def test_an_orchestrator_that_forgot_everything_is_told_anew(
    orchestrator: OrchestratorForNodes, start_node: StartNode, scripted_llm: str, tmp_path: Path
) -> None:
    write_weights(tmp_path, "new")
    update = WeightUpdate(path=str(tmp_path), version=5)
    node = start_node(scripted_llm)
    await_ready(node)
    node.post("/weights", update, WeightReport)
    orchestrator.nodes.clear()
    orchestrator.published = None
    until("the node tells what was published", lambda: orchestrator.published == update)


def test_a_node_is_not_ready_while_one_of_its_servers_does_not_answer(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    mortal_llm: MortalLLM,
    scripted_llm: str,
) -> None:
    node = start_node(scripted_llm, mortal_llm.url)
    await_ready(node)
    mortal_llm.die()
    answer = requests.get(f"{node.url}/readyz", timeout=10)
    assert answer.status_code == 503
    sentence = f"no answer from the LLM server at {mortal_llm.url}"
    assert answer.json()["message"] == f"not ready: {sentence}"
    until("the orchestrator hears of it", lambda: orchestrator.nodes[-1].trouble == sentence)
    mortal_llm.start()
    await_ready(node)


def test_a_server_that_died_is_shown_as_unhealthy_and_named_by_score(
    orchestrator: OrchestratorForNodes, start_node: StartNode, scripted_llm: str
) -> None:
    node = start_node(scripted_llm)
    await_registered(orchestrator)
    await_ready(node)
    body = {"kind": "error_500", "route": "/health", "times": 1000}
    requests.post(f"{scripted_llm}/script/faults", json=body, timeout=5)
    assert not node.get("/servers", NodeState).servers[0].healthy
    body = {"kind": "error_500", "times": 1000}
    requests.post(f"{scripted_llm}/script/faults", json=body, timeout=5)
    with pytest.raises(LLMUnavailable, match=scripted_llm):
        node.post("/score", ScoreRequest(token_ids=array("i", [1, 2])), Scores)


@pytest.mark.timeout(360)
def test_vllm_scores_as_the_trainer_does_after_an_update(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    vllm_llm: str,
    other_weights: Path,
    prompt: list[int],
) -> None:
    node = start_node(vllm_llm)
    await_registered(orchestrator)
    await_ready(node)
    version = (LLMServer(vllm_llm).version() or 0) + 1
    tokens = ScoreRequest(token_ids=array("i", prompt))
    old = node.post("/score", tokens, Scores).logprobs[vllm_llm]
    node.post("/weights", WeightUpdate(path=str(other_weights), version=version), WeightReport)
    new = node.post("/score", tokens, Scores).logprobs[vllm_llm]
    node.post("/weights", WeightUpdate(path=str(POLICY), version=version + 1), WeightReport)
    true_old, true_new = true_logprobs(prompt, POLICY, other_weights)
    assert list(old) == pytest.approx(true_old, abs=1e-3)
    assert list(new) == pytest.approx(true_new, abs=1e-3)
    assert max(abs(a - b) for a, b in zip(old, new, strict=True)) > 1e-2


def test_a_server_that_died_has_the_adapter_of_the_day_with_the_next_heartbeats(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    adapter = str(random_adapter(tmp_path / "step-1", POLICY))
    llm = MortalLLM(tmp_path, "--enable-lora")
    try:
        node = start_node(llm.url)
        await_ready(node)
        tokens = ScoreRequest(token_ids=array("i", [1, 2, 3]))
        node.post("/weights", WeightUpdate(path=adapter, version=1), WeightReport)
        before = node.post("/score", tokens, Scores)
        llm.die()
        until("its death is noticed", lambda: not orchestrator.nodes[-1].states[0].healthy)
        llm.start()
        await_version(llm.url, 1)
        assert node.post("/score", tokens, Scores) == before
        until("it is told", lambda: orchestrator.nodes[-1].states[0].adapter == adapter)
    finally:
        llm.die()


def test_an_adapter_for_a_model_with_tied_embeddings_is_published_and_a_checkpoint_is_not(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    model = tmp_path / "tied"
    shutil.copytree(POLICY, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    adapter = random_adapter(tmp_path / "step-1", model)
    llm = MortalLLM(tmp_path, "--enable-lora")
    try:
        node = start_node(llm.url, model=model)
        await_ready(node)
        with pytest.raises(InvalidMessage, match="ties its embeddings"):
            node.post("/weights", WeightUpdate(path=str(POLICY), version=1), WeightReport)
        node.post("/weights", WeightUpdate(path=str(adapter), version=1), WeightReport)
        assert LLMServer(llm.url).version() == 1
    finally:
        llm.die()


def test_a_server_that_fails_to_load_leaves_the_rotation_and_returns_at_the_right_version(
    orchestrator: OrchestratorForNodes,
    start_node: StartNode,
    start_scripted_llm: StartScriptedLLM,
    start_proxy: StartProxy,
    tmp_path: Path,
) -> None:
    write_weights(tmp_path, "new")
    good, failing = start_scripted_llm(), start_scripted_llm()
    proxy = start_proxy(good, failing)
    node = start_node(good, failing, proxy=proxy)
    await_ready(node)
    fault = {"kind": "error_500", "route": "/collective_rpc", "times": 1000}
    requests.post(f"{failing}/script/faults", json=fault, timeout=5).raise_for_status()

    report = node.post("/weights", WeightUpdate(path=str(tmp_path), version=1), WeightReport)
    assert (report.servers, list(report.behind)) == ((good,), [failing])
    assert "phase 'load'" in report.behind[failing]
    until("the run may go on", lambda: orchestrator.nodes[-1].serves == 1)
    assert {versions_from(proxy, number) for number in range(8)} == {"1"}
    states = {state.url: state for state in orchestrator.nodes[-1].states}
    assert (states[good].version, states[good].trouble) == (1, "")
    assert "phase 'load'" in states[failing].trouble
    assert f"{failing}: phase 'load'" in requests.get(f"{node.url}/readyz", timeout=5).text

    requests.post(f"{failing}/script/faults", json={**fault, "times": 0}, timeout=5)
    await_version(failing, 1)
    until("all is well", lambda: not orchestrator.nodes[-1].trouble)
    assert not any(state.trouble for state in orchestrator.nodes[-1].states)


def versions_from(proxy: str, number: int) -> str:
    """The version that a response through the proxy was sampled under."""
    sampling = {"max_tokens": 2, "logprobs": 0, "ignore_eos": True}
    body = {"token_ids": [number], "sampling_params": sampling, "request_id": f"t{number}-0"}
    answer = requests.post(f"{proxy}{GENERATE}", json=body, timeout=REGISTER_SECONDS).json()
    (span,) = answer["choices"][0]["weight_versions"]
    return str(span["version"])
