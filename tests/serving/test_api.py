"""How every service answers: in the caller's form, and never with HTML or a traceback."""

import socket
import time
from collections.abc import Iterator

import pytest
import requests
from flask import Response

from rollyard import codec
from rollyard.errors import Conflict, LaunchError, RollyardError, StaleAttempt, Unavailable
from rollyard.http import Peer
from rollyard.messages import Accepted, BatchRequest
from serving.api import error_reply, new_app, reply
from serving.bind import Bind
from serving.bodies import MAX_BODY_BYTES
from tests.serving_threads import read, served


@pytest.fixture
def url() -> Iterator[str]:
    app = new_app("example")

    @app.post("/echo")
    def echo() -> Response:
        return reply(read(BatchRequest))

    @app.get("/stale")
    def stale() -> Response:
        raise StaleAttempt("too late", fix="clean up")

    @app.get("/bug")
    def bug() -> Response:
        raise KeyError("secret")

    @app.get("/slow")
    def slow() -> Response:
        time.sleep(0.5)
        return reply(Accepted())

    @app.get("/proxy")
    def proxy() -> Response:
        return Response("<html>Bad Gateway</html>", 502)

    @app.get("/late")
    def late() -> Response:
        return error_reply(408, "RequestTimeout", "the request did not come in time", "")

    with served(app) as address:
        yield address


def test_a_reply_has_the_form_that_the_caller_accepts(url: str) -> None:
    request = BatchRequest(batch_id="b", requested_batch_size=1, weight_version=2)
    assert Peer(url, name="example").post("/echo", request, BatchRequest) == request
    answer = requests.post(f"{url}/echo", data=codec.encode_json(request), timeout=10)
    assert answer.json() == {"batch_id": "b", "requested_batch_size": 1, "weight_version": 2}


def test_an_error_is_raised_again_on_the_callers_side(url: str) -> None:
    with pytest.raises(StaleAttempt, match="too late; clean up") as caught:
        Peer(url, name="example").get("/stale", Accepted)
    assert isinstance(caught.value, Conflict)


def test_a_call_may_take_longer_than_its_peers_calls_usually_do(url: str) -> None:
    hasty = Peer(url, name="example", timeout_seconds=0.1)
    with pytest.raises(Unavailable, match="it took too long"):
        hasty.get("/slow", Accepted)
    assert hasty.get("/slow", Accepted, timeout_seconds=10) == Accepted()


def test_a_failure_without_a_reason_is_worth_another_try_and_names_the_peer(url: str) -> None:
    with pytest.raises(Unavailable, match=r"example at http://.* answered 502 with no reason"):
        Peer(url, name="example").get("/proxy", Accepted)


def test_a_request_that_came_too_slowly_is_worth_another_try(url: str) -> None:
    with pytest.raises(Unavailable, match="did not come in time"):
        Peer(url, name="example").get("/late", Accepted)


def test_an_error_that_the_caller_does_not_know_is_worth_another_try_if_the_server_failed(
    url: str,
) -> None:
    with pytest.raises(Unavailable, match="KeyError in example; see the log of example"):
        Peer(url, name="example").get("/bug", Accepted)
    with pytest.raises(RollyardError) as caught:
        Peer(url, name="example").get("/echo", Accepted)
    assert not isinstance(caught.value, Unavailable)


def test_an_error_is_readable_json_for_people(url: str) -> None:
    answer = requests.get(f"{url}/stale", timeout=10)
    assert answer.status_code == 409
    assert answer.json() == {"code": "StaleAttempt", "message": "too late", "fix": "clean up"}


def test_a_bug_is_a_500_that_tells_no_details(url: str) -> None:
    answer = requests.get(f"{url}/bug", timeout=10)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["code"] == "InternalError"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/echo", 405),
    ],
)
def test_a_request_that_fits_no_route_is_refused_as_json(
    url: str, method: str, path: str, status: int
) -> None:
    answer = requests.request(method, url + path, timeout=10)
    assert answer.status_code == status
    assert answer.json()["message"]


def test_a_path_that_there_is_not_is_named(url: str) -> None:
    answer = requests.get(f"{url}/nowhere", timeout=10)
    assert answer.json()["message"].endswith(" has no route GET /nowhere")


def test_a_method_that_a_path_does_not_have_is_answered_with_those_that_it_has(url: str) -> None:
    answer = requests.put(f"{url}/echo", timeout=10)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"OPTIONS", "POST"}


def test_a_body_that_is_too_large_is_refused_before_it_is_read(url: str) -> None:
    answer = requests.post(f"{url}/echo", data=b"x" * (MAX_BODY_BYTES + 1), timeout=30)
    assert answer.status_code == 413
    assert answer.json()["message"] == "the body is larger than the 64 MiB that example takes"


def test_a_body_without_a_length_is_refused_when_it_has_become_too_large(url: str) -> None:
    pieces = (b"x" * 2**20 for _ in range(MAX_BODY_BYTES // 2**20 + 1))
    answer = requests.post(f"{url}/echo", data=pieces, timeout=30)
    assert (answer.status_code, answer.json()["code"]) == (413, "TooLarge")


def test_a_body_without_a_length_is_read_to_its_end(url: str) -> None:
    request = BatchRequest(batch_id="b", requested_batch_size=1)
    pieces = (bytes([byte]) for byte in codec.encode_json(request))
    assert requests.post(f"{url}/echo", data=pieces, timeout=10).json()["batch_id"] == "b"


def test_a_peer_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"no answer from the moon at http://127.0.0.1:9/x"):
        Peer("http://127.0.0.1:9", name="the moon").get("/x", Accepted)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::"])
def test_other_addresses_than_loopback_take_tokens_or_the_word_insecure(host: str) -> None:
    with pytest.raises(LaunchError, match=f"refusing to listen on {host}.*--token-file"):
        Bind(host=host, port=8005)
    assert not Bind(host=host, port=8005, protected=True).exposed
    assert Bind(host=host, port=8005, insecure=True).exposed


def test_a_bind_knows_how_others_reach_it() -> None:
    assert Bind(port=8005).url == "http://127.0.0.1:8005"
    assert Bind(host="::1", port=8005).url == "http://[::1]:8005"
    name = socket.gethostname()
    assert Bind(host="0.0.0.0", port=8005, protected=True).url == f"http://{name}:8005"


def test_a_port_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LaunchError, match="port must be"):
        Bind(port=0)
