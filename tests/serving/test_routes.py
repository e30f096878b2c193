"""A route is served as it is declared, and described as it is served."""

from typing import Annotated, Any

import msgspec
import pytest
from flask.testing import FlaskClient

from rollyard import codec
from rollyard.errors import Conflict, NotFound, Unavailable
from rollyard.messages import BatchRequest, JobState, ScoreRequest, WaitSeconds
from rollyard.tokens import Role
from serving import waits
from serving.access import EVERYONE, allow
from serving.declaration import OnWire
from serving.routes import Routes

Few = Annotated[int, msgspec.Meta(ge=1, le=9)]


class PackedBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A BatchRequest of which the view reads the name alone."""

    batch_id: str
    requested_batch_size: msgspec.Raw
    weight_version: msgspec.Raw = msgspec.Raw(codec.encode(None))


class Example:
    """Routes of every kind, and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.routes = Routes("example", raises=(Unavailable,))
        self._add_routes()

    def _add_routes(self) -> None:
        @self.routes.post("/<name>/batches", allow(Role.SUBMIT), status=202, raises=(Conflict,))
        def request(name: str, batch: BatchRequest, *, more: bool = False) -> None:
            """Ask for a Batch."""
            self.calls.append((name, batch, more))

        @self.routes.get("/jobs", allow(Role.READ), raises=(NotFound,))
        def jobs(
            *, state: JobState | None = None, limit: Few = 5, wait_seconds: WaitSeconds = 0.0
        ) -> list[BatchRequest]:
            self.calls.append((state, limit, wait_seconds))
            return [BatchRequest(batch_id="b", requested_batch_size=1)]

        @self.routes.post("/score", allow(Role.SUBMIT))
        def score(wanted: ScoreRequest) -> ScoreRequest:
            return wanted

        @self.routes.post("/batches", allow(Role.SUBMIT))
        def pass_on(
            passed: Annotated[list[PackedBatch], OnWire(list[BatchRequest])],
        ) -> Annotated[list[PackedBatch], OnWire(list[BatchRequest])]:
            self.calls.append((passed,))
            return passed

        @self.routes.get("/text", EVERYONE)
        def text() -> str:
            return "words\n"

    @property
    def client(self) -> FlaskClient:
        return self.routes.app.test_client()


@pytest.fixture
def example() -> Example:
    return Example()


@pytest.fixture
def document(example: Example) -> dict[str, Any]:
    answer: dict[str, Any] = example.client.get("/openapi.json").get_json()
    return answer


BATCH = {"batch_id": "b", "requested_batch_size": 2}


@pytest.mark.parametrize(("query", "more"), [("", False), ("?more", True), ("?more=false", False)])
def test_a_view_is_called_with_path_body_and_query(
    example: Example, query: str, more: bool
) -> None:
    answer = example.client.post(f"/train/batches{query}", json=BATCH)
    assert (answer.status_code, answer.get_json()) == (202, {"accepted": True})
    wanted = BatchRequest(batch_id="b", requested_batch_size=2)
    assert example.calls == [("train", wanted, more)]


def test_what_a_query_leaves_out_has_its_default(example: Example) -> None:
    answer = example.client.get("/jobs?state=dead&wait_seconds=1.5")
    (request,) = answer.get_json()
    assert request == {"batch_id": "b", "requested_batch_size": 1, "weight_version": None}
    assert example.calls == [(JobState.DEAD, 5, 1.5)]


@pytest.mark.parametrize("sent_as", [codec.JSON, codec.MSGPACK])
@pytest.mark.parametrize("accepted", [codec.JSON, codec.MSGPACK])
def test_what_a_view_does_not_read_stays_packed_whatever_form_its_callers_speak(
    example: Example, sent_as: str, accepted: str
) -> None:
    encode = codec.encode_json if sent_as == codec.JSON else codec.encode
    decode = codec.decode_json if accepted == codec.JSON else codec.decode
    answer = example.client.post(
        "/batches", data=encode([BATCH]), headers={"Content-Type": sent_as, "Accept": accepted}
    )
    ((passed,),) = example.calls
    assert (passed[0].batch_id, bytes(passed[0].requested_batch_size)) == ("b", codec.encode(2))
    wanted = BatchRequest(batch_id="b", requested_batch_size=2)
    assert decode(answer.data, list[BatchRequest]) == [wanted]


def test_what_stays_packed_is_described_as_its_callers_see_it(document: dict[str, Any]) -> None:
    operation = document["paths"]["/batches"]["post"]
    for part in (operation["requestBody"], operation["responses"]["200"]):
        for described in part["content"].values():
            assert described["schema"]["items"]["$ref"].endswith("/BatchRequest")


def test_text_is_answered_as_text(example: Example) -> None:
    answer = example.client.get("/text")
    assert (answer.mimetype, answer.text) == ("text/plain", "words\n")


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=10", "limit=many", "limit=", "limit=1_0", "limit=1&limit=2"),
        *("wait_seconds=nan", "wait_seconds=inf", "wait_seconds=-1", "wait_seconds=61"),
        *("state=lost", "state=", "limt=1"),
    ],
)
def test_a_query_that_was_not_declared_is_refused(example: Example, query: str) -> None:
    answer = example.client.get(f"/jobs?{query}")
    assert answer.status_code == 400
    assert answer.get_json()["code"] == "InvalidMessage"
    assert example.calls == []


def test_a_path_with_a_doubled_slash_is_not_found_and_not_redirected(example: Example) -> None:
    answer = example.client.post("/train//batches", json=BATCH)
    assert (answer.status_code, answer.get_json()["code"]) == (404, "NotFound")


def test_a_view_with_two_bodies_is_no_route(example: Example) -> None:
    with pytest.raises(TypeError, match="one body"):

        @example.routes.post("/two", EVERYONE)
        def two(one: BatchRequest, other: BatchRequest) -> None: ...


def test_the_description_is_a_valid_openapi_document(document: dict[str, Any]) -> None:
    import schemathesis  # half a second of each process that collects these tests

    schemathesis.openapi.from_dict(document).validate()
    assert document["openapi"] == "3.1.0"


def test_the_description_says_what_a_route_takes_gives_and_refuses(
    document: dict[str, Any],
) -> None:
    described = document["paths"]["/{name}/batches"]["post"]
    assert described["summary"] == "Ask for a Batch."
    assert described["security"] == [{"token": ["admin"]}, {"token": ["submit"]}]
    taken = described["requestBody"]["content"]
    wanted = {"schema": {"$ref": "#/components/schemas/BatchRequest"}}
    assert taken == {"application/json": wanted, "application/msgpack": wanted}
    assert [(p["name"], p["in"]) for p in described["parameters"]] == [
        ("name", "path"),
        ("more", "query"),
    ]
    assert set(described["responses"]) == {
        *("202", "400", "401", "403", "408", "409", "413", "503")
    }
    assert "Retry-After" in described["responses"]["503"]["headers"]


def test_a_route_for_everyone_is_described_as_one(document: dict[str, Any]) -> None:
    described = document["paths"]["/text"]["get"]
    assert described["security"] == []
    assert set(described["responses"]) == {"200"}


def test_bounds_defaults_and_choices_are_described(document: dict[str, Any]) -> None:
    described = {p["name"]: p for p in document["paths"]["/jobs"]["get"]["parameters"]}
    assert described["limit"]["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 5,
    }
    assert described["state"]["schema"] == {"$ref": "#/components/schemas/JobState"}
    assert document["components"]["schemas"]["JobState"]["enum"]


def test_an_array_is_described_as_json_has_it(example: Example, document: dict[str, Any]) -> None:
    described = document["components"]["schemas"]["ScoreRequest"]["properties"]["token_ids"]
    sent = {"array": "i", "base64": "AQAAAA=="}
    answer = example.client.post("/score", json={"token_ids": sent})
    assert answer.get_json() == {"token_ids": sent}
    assert set(described["required"]) == set(sent)
    assert sent["array"] in described["properties"]["array"]["enum"]


def test_a_call_beyond_those_that_may_wait_is_refused_for_now_unless_it_does_not_wait(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "MAX_WAITS", 0)
    refused = example.client.get("/jobs?wait_seconds=1")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert example.client.get("/jobs").status_code == 200
