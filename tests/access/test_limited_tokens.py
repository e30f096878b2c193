"""A token that is limited to Runs opens nothing of any other, whatever it asks and however."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from orchestrator.app import create_app
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from rollyard import codec
from rollyard.messages import AgentServer, LLMNode, Prompt, RunSettings
from rollyard.tokens import Role
from serving.access import NAMES_RUN, SCOPES
from serving.admission import STRANGER, admission_to
from tests.access.credentials import LIMITED, OWN, SECRET, TOKENS
from tests.access.test_routes import SERVICES
from tests.queue_fixtures import QueueMaker
from tests.waiting import until

OTHER = "theirs"
"""A Run that limited tokens are not for; each name of what it has begins like this."""
SCOPED = {
    "POST /runs": "within",
    "GET /status": "within",
    "GET /metrics": "within",
    "GET /jobs": "within",
    "GET /dead": "within",
    "GET /weights": "shared",
    "POST /score": "shared",
}
"""The orchestrator's routes that no Run in their path keeps to the Runs of a token. A limited token
opens these, those that name one of its Runs, and no other route of any service."""
DECOYS = (
    OTHER,
    f"{OTHER}/theirs-0/0",
    f"own/../{OTHER}/theirs-0/0",
    f"own/../{OTHER}",
    f"./{OTHER}/theirs-0/0",
    f"own//{OTHER}/theirs-0/0",
    f"own/theirs-0/0?run={OTHER}",
    f"own%2F..%2F{OTHER}%2Ftheirs-0%2F0",
    f"{OTHER}%00own",
    f"own,{OTHER}",
    f"own {OTHER}",
    f"OWN/../{OTHER}",
    "theirs-batch",
    "theirs-server",
)


def names_a_run(route: str) -> bool:
    return any(f"{each}>" in route for each in NAMES_RUN)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("service", SERVICES)
def test_every_route_keeps_to_the_runs_of_a_token_or_is_closed_to_it(
    service: str, request: pytest.FixtureRequest
) -> None:
    app: Flask = request.getfixturevalue(service)
    client, admit = app.test_client(), admission_to(app)
    for route, roles in SERVICES[service].items():
        method, path = re.sub("<[^>]*>", OTHER, route).split()
        for token in LIMITED.values():
            answer = client.open(path, method=method, headers=bearer(token))
            if roles == "everyone":
                assert answer.status_code not in (401, 403), route
            elif service != "orchestrator" or route not in SCOPED:
                assert answer.status_code == 403, route
                assert admit(method, path, bearer(token)["Authorization"]) == STRANGER, route
            assert token not in answer.text


@pytest.mark.parametrize("service", SERVICES)
def test_a_route_without_a_run_in_its_path_says_how_it_keeps_to_runs_or_is_closed(
    service: str, request: pytest.FixtureRequest
) -> None:
    app: Flask = request.getfixturevalue(service)
    declared = {
        f"{method} {rule.rule}": app.extensions[SCOPES][rule.endpoint].value
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.endpoint in app.extensions[SCOPES]
    }
    assert declared == (SCOPED if service == "orchestrator" else {})
    assert not [route for route in declared if names_a_run(route)], "its path says it already"


# What is in the answers


@pytest.fixture(scope="module")
def client(make_queues: QueueMaker) -> Iterator[FlaskClient]:
    """An orchestrator with a Run of the tokens, and one of others that has failing Jobs, dead ones
    and a Batch under way."""
    orchestrator = Orchestrator(make_queues(Queues, lease_seconds=600.0))
    client = create_app(orchestrator, TOKENS).test_client()
    server = AgentServer(
        server_id="server", url="http://127.0.0.1:9", slots=4, environments=("echo",)
    )
    node = LLMNode(node_id="node", url="http://127.0.0.1:9", servers=(), model="m", serves=0)
    post(client, Role.WORKER, "/servers", server)
    post(client, Role.WORKER, "/llm-nodes", node)
    for run in ("own", OTHER):
        post(client, Role.SUBMIT, "/runs", RunSettings(run_id=run, group_size=2))
        batch = {"batch_id": f"{run}-batch", "requested_batch_size": 1}
        post(client, Role.SUBMIT, f"/runs/{run}/batches", batch)
        prompts = [
            Prompt(prompt_id=f"{run}-{n}", instance={"data_source": "echo", "text": f"{run} text"})
            for n in range(2)
        ]
        post(client, Role.SUBMIT, f"/runs/{run}/prompts", prompts)
    yield client
    orchestrator.close()


def post(client: FlaskClient, role: Role, path: str, message: object) -> TestResponse:
    answer = sent(client, SECRET[role], path, message)
    assert answer.status_code < 300, answer.text
    return answer


def sent(client: FlaskClient, token: str, path: str, message: object) -> TestResponse:
    body = codec.encode_json(message)
    return client.post(path, data=body, headers=bearer(token), content_type="application/json")


def got(client: FlaskClient, path: str, token: str) -> TestResponse:
    return client.get(path, headers=bearer(token))


def test_lists_and_metrics_have_what_is_of_the_runs_of_the_token_alone(
    client: FlaskClient,
) -> None:
    until(
        "the jobs of the other run are listed",
        lambda: "theirs-" in got(client, "/jobs", SECRET[Role.ADMIN]).text,
    )
    for path in ("/status", "/metrics", "/jobs", "/dead", "/jobs?closed", "/dead?closed"):
        whole = got(client, path, SECRET[Role.ADMIN])
        own = got(client, path, LIMITED[Role.ADMIN])
        assert own.status_code == 200
        assert OTHER not in own.text, path
        if not path.startswith("/dead"):
            assert OTHER in whole.text, path
            assert "own" in own.text, path
    assert got(client, "/jobs?run=own", LIMITED[Role.READ]).status_code == 200


@pytest.mark.parametrize("token", LIMITED.values())
def test_no_name_leads_to_another_run(client: FlaskClient, token: str) -> None:
    for decoy in DECOYS:
        for name in (decoy, quote(decoy), quote(decoy, safe="")):
            for path in (
                f"/jobs?run={name}",
                f"/dead?run={name}",
                f"/jobs/{name}",
                f"/why/{name}",
                f"/trajectories/{name}",
                f"/runs/{name}",
                f"/runs/own/batches/{name}",
                f"/runs/own/../{name}",
            ):
                answer = got(client, path, token)
                assert answer.status_code in (308, 400, 403, 404), (path, answer.status_code)


def test_whether_a_run_exists_makes_no_difference_to_the_answer(client: FlaskClient) -> None:
    told = [got(client, f"/runs/{run}", LIMITED[Role.SUBMIT]).text for run in (OTHER, "none")]
    assert told[0] == told[1]


def test_a_trainer_creates_and_drives_its_own_runs_and_no_other(client: FlaskClient) -> None:
    token = LIMITED[Role.SUBMIT]
    assert sent(client, token, "/runs", RunSettings(run_id=OWN[1])).status_code == 201
    assert sent(client, token, "/runs", RunSettings(run_id="new")).status_code == 403
    listed = got(client, "/status", SECRET[Role.READ]).get_json()["runs"]
    assert sorted(run["run_id"] for run in listed) == sorted(("own", "own-too", OTHER))
    assert got(client, "/runs/own/prompts", token).get_json() == ["own-0", "own-1"]
    assert got(client, f"/runs/{OTHER}/prompts", token).status_code == 403
    assert got(client, "/weights", token).status_code == 200


def test_weights_that_another_run_samples_with_are_not_its_to_change(client: FlaskClient) -> None:
    update = {"path": "/checkpoint", "version": 1}
    refused = sent(client, LIMITED[Role.SUBMIT], "/runs/own/weights", update)
    assert refused.status_code == 403
    assert OTHER not in refused.text
    assert sent(client, LIMITED[Role.ADMIN], "/weights", update).status_code == 403
    assert got(client, "/weights", SECRET[Role.READ]).get_json() == {"version": 0}


def test_a_sentence_on_parked_jobs_names_no_other_run(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.operators import Operators
    from orchestrator.queues.jobs import Jobs, Standing

    def all_parked(self: Jobs, leased: object) -> Standing:
        return Standing(leased=4, parked={"own": 1, OTHER: 3})

    monkeypatch.setattr(Jobs, "standing", all_parked)
    seen = []
    ask = Operators.fleet

    def fleet(self: Operators) -> object:
        seen.append(ask(self))
        return seen[-1]

    monkeypatch.setattr(Operators, "fleet", fleet)
    for token in (LIMITED[Role.READ], SECRET[Role.READ]):
        got(client, "/runs/own", token)
    limited, whole = (each.standing.parked for each in seen)
    assert limited == {"own": 1, "": 3}
    assert whole == {"own": 1, OTHER: 3}
