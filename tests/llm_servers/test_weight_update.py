"""The update sequence over several servers, and what is left standing when a part of it fails."""

import json
import shutil
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from llm_servers.server import LLMServer
from llm_servers.weights import WeightUpdater
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable
from rollyard.messages import WeightUpdate
from tests.llm_fixtures import MortalLLM, StartScriptedLLM, write_weights


@pytest.fixture
def pair(start_scripted_llm: StartScriptedLLM) -> list[LLMServer]:
    return [LLMServer(start_scripted_llm()) for _ in range(2)]


@pytest.fixture
def updater(pair: list[LLMServer]) -> WeightUpdater:
    return WeightUpdater(pair)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "step-1"
    path.mkdir()
    write_weights(path, "step 1")
    return path


def fail(server: LLMServer, route: str, times: int = 1) -> None:
    body = {"kind": "error_500", "route": route, "times": times}
    requests.post(f"{server.url}/script/faults", json=body, timeout=5).raise_for_status()


def scores(server: LLMServer) -> list[float]:
    return list(server.score(array("i", [5, 6, 7])))


def test_an_update_reaches_every_server_and_lets_them_go_on(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    old = scores(pair[0])
    report = updater.update(WeightUpdate(path=str(checkpoint), version=1))
    assert report.version == 1
    assert report.servers == tuple(server.url for server in pair)
    assert report.paused_seconds > 0
    assert [server.version() for server in pair] == [1, 1]
    assert not any(server.paused() for server in pair)
    assert scores(pair[0]) == scores(pair[1]) != old


def copy_of(checkpoint: Path, name: str) -> Path:
    return Path(shutil.copytree(checkpoint, checkpoint.with_name(name)))


@pytest.mark.parametrize("version", [3, 2, -1])
def test_a_version_that_does_not_rise_is_a_conflict(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path, version: int
) -> None:
    updater.update(WeightUpdate(path=str(checkpoint), version=3))
    other = WeightUpdate(path=str(copy_of(checkpoint, "other")), version=version)
    with pytest.raises(Conflict, match=f"weight version {version} does not rise"):
        updater.update(other)
    assert [server.version() for server in pair] == [3, 3]


def test_an_update_repeated_because_its_answer_was_lost_is_answered_alike(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    update = WeightUpdate(path=str(checkpoint), version=3)
    report = updater.update(update)
    for server in pair:
        fail(server, "/pause")
    assert updater.update(update) == report


def test_a_checkpoint_that_cannot_be_loaded_is_refused_before_anything_is_paused(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    half, incomplete = copy_of(checkpoint, "half"), copy_of(checkpoint, "incomplete")
    written = (half / "model.safetensors").read_bytes()
    (half / "model.safetensors").write_bytes(written[:-1])
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (incomplete / "model.safetensors.index.json").write_text(json.dumps(index))
    (checkpoint / "config.json").write_text('{"tie_word_embeddings": true}')
    for server in pair:
        fail(server, "/pause")
    for path, problem in [
        (tmp_path / "missing", "no such directory"),
        (empty, "no .safetensors"),
        (checkpoint, "ties its embeddings"),
        (half, r"model\.safetensors has \d+ bytes, and should have \d+"),
        (
            incomplete,
            r"lacks model-2\.safetensors, which its model\.safetensors\.index\.json names",
        ),
    ]:
        with pytest.raises(InvalidMessage, match=problem):
            updater.update(WeightUpdate(path=str(path), version=1))
    assert [server.version() for server in pair] == [0, 0]
    with pytest.raises(LLMUnavailable):
        pair[0].pause()  # the fault was not used up: nobody called /pause before


def test_a_failed_pause_leaves_the_servers_running_on_the_old_weights(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    old = scores(pair[0])
    fail(pair[1], "/pause")
    with pytest.raises(LLMUnavailable, match=f"'pause' on 1 of 2 LLM servers: {pair[1].url}"):
        updater.update(WeightUpdate(path=str(checkpoint), version=1))
    for server in pair:
        assert not server.paused()
        assert server.version() == 0
        assert scores(server) == old


@pytest.mark.parametrize(
    ("route", "phase"),
    [
        ("/collective_rpc", "load"),
        ("/reset_prefix_cache", "reset the prefix cache"),
        ("/update_weight_version", "set the version"),
    ],
)
def test_a_failure_after_the_pause_keeps_every_server_paused_until_a_retry_heals_them(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path, route: str, phase: str
) -> None:
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    fail(pair[0], route)
    with pytest.raises(LLMUnavailable) as failure:
        updater.update(wanted)
    assert f"phase '{phase}'" in failure.value.message
    assert pair[0].url in failure.value.message
    assert pair[1].url not in failure.value.message
    assert all(server.paused() for server in pair)
    updater.update(wanted)
    assert not any(server.paused() for server in pair)
    assert [server.version() for server in pair] == [1, 1]
    assert scores(pair[0]) == scores(pair[1])


def test_a_server_with_doubtful_weights_stays_paused_when_the_retry_fails_too(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    """One has the new weights under the old version: it must not speak under that."""
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    fail(pair[1], "/collective_rpc")
    with pytest.raises(LLMUnavailable, match="'load'"):
        updater.update(wanted)
    fail(pair[1], "/pause")
    with pytest.raises(LLMUnavailable, match="'pause'"):
        updater.update(wanted)
    assert all(server.paused() for server in pair)
    updater.update(wanted)
    assert not any(server.paused() for server in pair)


def test_only_what_lags_behind_is_given_the_published_weights(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    updater.update(wanted)
    requests.post(
        f"{pair[1].url}/update_weight_version", json={"new_version": "default"}, timeout=5
    )
    fail(pair[0], "/pause")
    assert updater.restore(wanted)
    assert [server.version() for server in pair] == [1, 1]
    with pytest.raises(LLMUnavailable):
        pair[0].pause()  # the fault was not used up: it was left alone
    assert not updater.restore(wanted)


def test_a_server_that_cannot_resume_is_named_and_the_same_update_may_be_sent_again(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    fail(pair[1], "/resume")
    with pytest.raises(LLMUnavailable, match=f"'resume' on 1 of 2 LLM servers: {pair[1].url}"):
        updater.update(wanted)
    assert [server.paused() for server in pair] == [False, True]
    assert updater.update(wanted).version == 1
    assert not any(server.paused() for server in pair)


def test_a_version_that_was_given_out_never_names_other_weights(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_weights(other, "other")
    fail(pair[1], "/resume")
    with pytest.raises(LLMUnavailable):
        updater.update(WeightUpdate(path=str(checkpoint), version=1))
    with pytest.raises(Conflict):
        updater.update(WeightUpdate(path=str(other), version=1))


def test_a_server_that_is_gone_is_named(pair: list[LLMServer], checkpoint: Path) -> None:
    gone = LLMServer("http://127.0.0.1:9")
    updater = WeightUpdater([pair[0], gone])
    with pytest.raises(LLMUnavailable, match=r"http://127\.0\.0\.1:9/pause"):
        updater.update(WeightUpdate(path=str(checkpoint), version=1))
    assert not pair[0].paused()


class StartsAgainOnceLoaded(LLMServer):
    """A server that dies as soon as it has its weights, and is back before the others have them."""

    def __init__(self, llm: MortalLLM) -> None:
        super().__init__(llm.url)
        self._llm = llm
        self._deaths_left = 1

    def load_weights(self, path: Path) -> None:
        super().load_weights(path)
        if self._deaths_left:
            self._deaths_left -= 1
            self._llm.die()
            self._llm.start()


def test_a_server_that_starts_again_amid_an_update_is_not_labelled_with_it(
    scripted_llm: str, mortal_llm: MortalLLM, checkpoint: Path
) -> None:
    """It has the model as started: what it samples must not count as that of the new weights."""
    other, mortal = LLMServer(scripted_llm), StartsAgainOnceLoaded(mortal_llm)
    updater = WeightUpdater([other, mortal])
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    with pytest.raises(LLMUnavailable, match=f"{mortal.url}: it started again"):
        updater.update(wanted)
    assert mortal.version() is None
    assert updater.restore(wanted)
    assert [other.version(), mortal.version()] == [1, 1]
    assert scores(other) == scores(mortal)


def test_two_updates_at_once_happen_one_after_the_other(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    outcomes: list[str] = []

    def update(name: str) -> None:
        try:
            updater.update(WeightUpdate(path=str(copy_of(checkpoint, name)), version=1))
            outcomes.append("updated")
        except Conflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=update, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["refused"] * 3 + ["updated"]


@pytest.fixture
def leaving(pair: list[LLMServer]) -> WeightUpdater:
    """Leaves those behind that fail, as behind a proxy."""
    return WeightUpdater(pair, leaves_behind=True)


@pytest.mark.parametrize(
    ("route", "phase"),
    [
        ("/pause", "pause"),
        ("/collective_rpc", "load"),
        ("/reset_prefix_cache", "reset the prefix cache"),
        ("/update_weight_version", "set the version"),
        ("/resume", "resume"),
    ],
)
def test_behind_a_proxy_the_others_go_on_without_a_server_that_fails(
    pair: list[LLMServer], leaving: WeightUpdater, checkpoint: Path, route: str, phase: str
) -> None:
    good, failing = pair
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    fail(failing, route)
    report = leaving.update(wanted)
    assert report.servers == (good.url,)
    assert f"phase '{phase}'" in report.behind[failing.url]
    assert leaving.behind == report.behind
    assert (good.version(), good.paused()) == (1, False)
    assert failing.paused() or failing.version() == 0
    assert leaving.restore(wanted)
    assert (failing.version(), failing.paused(), leaving.behind) == (1, False, {})
    assert scores(good) == scores(failing)


def test_behind_a_proxy_the_next_update_takes_a_server_along_that_was_left_behind(
    pair: list[LLMServer], leaving: WeightUpdater, checkpoint: Path
) -> None:
    fail(pair[1], "/collective_rpc")
    leaving.update(WeightUpdate(path=str(checkpoint), version=1))
    report = leaving.update(WeightUpdate(path=str(copy_of(checkpoint, "next")), version=2))
    assert (report.servers, report.behind) == (tuple(server.url for server in pair), {})
    assert [server.version() for server in pair] == [2, 2]


def test_behind_a_proxy_an_update_that_fails_on_all_is_a_failure(
    pair: list[LLMServer], leaving: WeightUpdater, checkpoint: Path
) -> None:
    for server in pair:
        fail(server, "/collective_rpc")
    with pytest.raises(LLMUnavailable, match="'load' on 2 of 2 LLM servers"):
        leaving.update(WeightUpdate(path=str(checkpoint), version=1))
    assert set(leaving.behind) == {server.url for server in pair}


def test_a_server_that_takes_far_longer_than_another_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
    pair: list[LLMServer],
    leaving: WeightUpdater,
    checkpoint: Path,
) -> None:
    monkeypatch.setattr("llm_servers.phases.LATE_SECONDS", 0.2)
    hang = {"kind": "hang", "route": "/collective_rpc"}
    requests.post(f"{pair[1].url}/script/faults", json=hang, timeout=5).raise_for_status()
    report = leaving.update(WeightUpdate(path=str(checkpoint), version=1))
    assert report.servers == (pair[0].url,)
    assert "long after that of another server" in report.behind[pair[1].url]
    requests.post(f"{pair[1].url}/script/faults", json={**hang, "times": 0}, timeout=5)


class Stuck(LLMServer):
    """Its loads do not end before it is let go."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loading = threading.Semaphore(0)
        """Counts the loads that have begun."""
        self.let_go = threading.Event()

    def load_weights(self, path: Path) -> None:
        self.loading.release()
        assert self.let_go.wait(60)
        super().load_weights(path)


@pytest.fixture
def stuck(pair: list[LLMServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    monkeypatch.setattr("llm_servers.phases.LATE_SECONDS", 0.2)
    stuck = Stuck(pair[1].url)
    yield stuck
    stuck.let_go.set()


def test_nobody_is_paused_again_for_a_server_that_was_late(
    pair: list[LLMServer],
    stuck: Stuck,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaving = WeightUpdater([pair[0], stuck], leaves_behind=True)
    late = leaving.update(WeightUpdate(path=str(checkpoint), version=1)).behind
    assert "long after that of another server" in late[stuck.url]
    wanted = WeightUpdate(path=str(copy_of(checkpoint, "next")), version=2)
    assert leaving.update(wanted).behind == late
    assert stuck.loading.acquire(timeout=1)
    assert not stuck.loading.acquire(blocking=False)
    stuck.let_go.set()
    assert not leaving.restore(wanted)  # not so soon
    monkeypatch.setattr("llm_servers.lateness.AGAIN_SECONDS", 0.0)
    assert leaving.restore(wanted)
    assert [server.version() for server in pair] == [2, 2]
    assert leaving.behind == {}
    report = leaving.update(WeightUpdate(path=str(copy_of(checkpoint, "last")), version=3))
    assert (len(report.servers), report.behind) == (2, {})


def test_an_update_does_not_wait_for_a_late_server_that_is_tried_alone(
    pair: list[LLMServer],
    stuck: Stuck,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llm_servers.lateness.AGAIN_SECONDS", 0.0)
    leaving = WeightUpdater([pair[0], stuck], leaves_behind=True)
    wanted = WeightUpdate(path=str(checkpoint), version=1)
    leaving.update(wanted)
    assert stuck.loading.acquire(timeout=1)
    restoring = threading.Thread(target=leaving.restore, args=(wanted,))
    restoring.start()
    assert stuck.loading.acquire(timeout=30)
    report = leaving.update(WeightUpdate(path=str(copy_of(checkpoint, "next")), version=2))
    assert report.servers == (pair[0].url,)
    restoring.join(30)
    assert not restoring.is_alive()


def test_nobody_is_paused_for_a_server_that_does_not_answer(
    pair: list[LLMServer], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_servers.looks.LOOK_SECONDS", 0.3)
    fault = {"kind": "hang", "route": "/is_paused", "times": 1}
    requests.post(f"{pair[1].url}/script/faults", json=fault, timeout=5).raise_for_status()
    leaving = WeightUpdater(pair, leaves_behind=True)
    report = leaving.update(WeightUpdate(path=str(checkpoint), version=1))
    assert report.servers == (pair[0].url,)
    assert "/is_paused within 0.3 s" in report.behind[pair[1].url]
    assert not pair[1].paused()
    assert leaving.restore(WeightUpdate(path=str(checkpoint), version=1))
    assert [server.version() for server in pair] == [1, 1]


def refit(version: int = 1) -> WeightUpdate:
    """The trainer says that it has put weights on the servers itself."""
    return WeightUpdate(path="", version=version)


@pytest.fixture
def heard(pair: list[LLMServer], updater: WeightUpdater) -> WeightUpdater:
    """Has heard what the servers answer with the weights that they started with."""
    updater.take_over([server.version() for server in pair])
    return updater


def test_weights_that_a_trainer_puts_on_the_servers_itself_are_labelled(
    pair: list[LLMServer], heard: WeightUpdater, checkpoint: Path
) -> None:
    for server in pair:
        server.load_weights(checkpoint)
    pair[1].pause()  # as a trainer does meanwhile
    new = scores(pair[0])
    report = heard.update(refit())
    assert (report.servers, report.unchanged) == (tuple(server.url for server in pair), ())
    assert [(server.version(), server.paused()) for server in pair] == [(1, False)] * 2
    assert scores(pair[0]) == scores(pair[1]) == new
    assert heard.update(refit()) == report


def test_a_server_that_a_trainer_has_left_out_is_seen_before_anything_is_labelled(
    pair: list[LLMServer], heard: WeightUpdater, checkpoint: Path
) -> None:
    pair[0].load_weights(checkpoint)
    with pytest.raises(InvalidMessage, match=f"{pair[1].url} answer as before the update"):
        heard.update(refit())
    assert [server.version() for server in pair] == [0, 0]
    pair[1].load_weights(checkpoint)
    assert heard.update(refit()).unchanged == ()


def test_servers_that_answer_differently_have_not_all_got_the_weights(
    pair: list[LLMServer], updater: WeightUpdater, checkpoint: Path
) -> None:
    """Nobody has heard them before."""
    pair[0].load_weights(checkpoint)
    with pytest.raises(InvalidMessage, match="apart: they differ in weights"):
        updater.update(refit())


def test_weights_that_are_those_of_before_are_labelled_and_told(
    pair: list[LLMServer], heard: WeightUpdater
) -> None:
    """The first step of a trainer whose learning rate rises from 0."""
    urls = tuple(server.url for server in pair)
    assert heard.update(refit(1)).unchanged == urls
    assert heard.update(refit(2)).unchanged == urls
    assert [server.version() for server in pair] == [2, 2]


def test_a_server_that_lost_the_weights_of_a_trainer_waits_for_the_next_ones(
    pair: list[LLMServer], heard: WeightUpdater
) -> None:
    heard.update(refit())
    requests.post(
        f"{pair[1].url}/update_weight_version", json={"new_version": "default"}, timeout=5
    )
    with pytest.raises(InvalidMessage, match="checkpoint of weight version 1 is not known"):
        heard.restore(refit())
    assert pair[1].version() is None
