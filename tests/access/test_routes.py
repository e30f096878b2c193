"""Every route of every service times every credential: who is let in, and who is not."""

import re
from collections.abc import Mapping

import pytest
from flask import Flask

from serving.access import ROLES
from tests.access.credentials import CREDENTIALS, TOKENS

ALL = frozenset(CREDENTIALS)

ORCHESTRATOR = {
    "POST /runs": "submit",
    "POST /runs/<run_id>/trainer": "submit",
    "POST /runs/<run_id>/trainer/heard": "submit",
    "GET /runs/<run_id>": "submit read",
    "POST /runs/<run_id>/prompts": "submit",
    "GET /runs/<run_id>/prompts": "submit",
    "POST /runs/<run_id>/batches": "submit",
    "GET /runs/<run_id>/batches/<batch_id>": "submit",
    "POST /runs/<run_id>/batches/<batch_id>/ack": "submit",
    "POST /runs/<run_id>/retry": "submit",
    "POST /runs/<run_id>/close": "submit",
    "POST /runs/<run_id>/weights": "submit",
    "POST /weights": "submit",
    "GET /weights": "submit read",
    "POST /score": "submit",
    "POST /llm-servers": "submit",
    "POST /servers": "worker",
    "POST /servers/leave": "worker",
    "POST /heartbeats": "worker",
    "POST /results": "worker",
    "POST /llm-nodes": "worker",
    "GET /llm-nodes": "worker",
    "POST /llm-nodes/leave": "worker",
    "GET /status": "submit read",
    "GET /occupancy": "submit read",
    "GET /metrics": "read",
    "GET /jobs": "submit read",
    "GET /jobs/<path:job_id>": "submit read",
    "POST /runs/<run_id>/share": "admin",
    "POST /runs/<run_id>/forget": "admin",
    "GET /trajectories/<path:name>": "submit read",
    "GET /dead": "submit read",
    "GET /servers": "submit read",
    "GET /checkup": "read",
    "GET /why/<path:name>": "submit read",
    "POST /jobs/<path:job_id>/cancel": "admin",
    "POST /jobs/<path:job_id>/requeue": "admin",
    "POST /servers/<server_id>/drain": "admin",
    "POST /llm-nodes/<node_id>/dismiss": "admin",
    "GET /livez": "everyone",
    "GET /openapi.json": "everyone",
    "GET /readyz": "everyone",
}
AGENT_SERVER = {
    "POST /jobs": "worker",
    "POST /cancel": "worker",
    "POST /park": "worker",
    "POST /resume": "worker",
    "POST /recall": "worker",
    "POST /llm-servers": "worker",
    "GET /status": "read",
    "GET /metrics": "read",
    "GET /livez": "everyone",
    "GET /openapi.json": "everyone",
    "GET /readyz": "everyone",
}
PRORL_DOOR = {
    "POST /start": "submit",
    "POST /stop": "submit",
    "GET /status": "submit read",
    "POST /process": "submit",
    "POST /cancel": "submit",
    "POST /add_llm_server": "submit",
    "POST /clear_llm_server": "submit",
    "GET /metrics": "read",
    "GET /livez": "everyone",
    "GET /openapi.json": "everyone",
}
NEMO_GYM_DOOR = {
    "POST /run": "submit",
    "POST /aggregate_metrics": "submit",
    "GET /global_config_dict_yaml": "submit read",
    "GET /metrics": "read",
    "GET /livez": "everyone",
    "GET /openapi.json": "everyone",
}
LLM_NODE = {
    "POST /weights": "worker",
    "GET /weights": "worker read",
    "POST /score": "worker",
    "GET /servers": "read",
    "GET /metrics": "read",
    "GET /livez": "everyone",
    "GET /openapi.json": "everyone",
    "GET /readyz": "everyone",
}


SERVICES: Mapping[str, Mapping[str, str]] = {
    "orchestrator": ORCHESTRATOR,
    "agent_server": AGENT_SERVER,
    "prorl_door": PRORL_DOOR,
    "nemo_gym_door": NEMO_GYM_DOOR,
    "llm_node": LLM_NODE,
}


@pytest.mark.parametrize("service", SERVICES)
def test_every_route_lets_in_exactly_those_it_is_for(
    service: str, request: pytest.FixtureRequest
) -> None:
    app: Flask = request.getfixturevalue(service)
    client = app.test_client()
    for route, roles in SERVICES[service].items():
        method, path = re.sub("<[^>]*>", "x", route).split()
        let_in = ALL if roles == "everyone" else {*roles.split(), "admin"}
        for name, header in CREDENTIALS.items():
            answer = client.open(
                path, method=method, headers={"Authorization": header} if header else {}
            )
            unknown = name in ("none", "garbage", "rotated out")
            refusal = 401 if unknown else 403
            if name in let_in:
                assert answer.status_code not in (401, 403), (route, name)
            else:
                assert answer.status_code == refusal, (route, name)
                assert answer.get_json()["code"] == ("Unauthorized" if unknown else "Forbidden")
            assert not any(each.token in answer.text for each in TOKENS)


@pytest.mark.parametrize("service", SERVICES)
def test_every_route_declares_its_roles_and_is_in_the_table(
    service: str, request: pytest.FixtureRequest
) -> None:
    app: Flask = request.getfixturevalue(service)
    declared = {
        f"{method} {rule.rule}": app.extensions[ROLES].get(rule.endpoint)
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    undeclared = [route for route, roles in declared.items() if roles is None]
    assert undeclared == [], "declare these with serving.routes"
    assert set(declared) == set(SERVICES[service])


@pytest.mark.parametrize("service", SERVICES)
def test_every_route_is_in_the_services_valid_description(
    service: str, request: pytest.FixtureRequest
) -> None:
    import schemathesis  # half a second of each process that collects these tests

    app: Flask = request.getfixturevalue(service)
    document = app.test_client().get("/openapi.json").get_json()
    schemathesis.openapi.from_dict(document).validate()
    described = {
        f"{method.upper()} {path}" for path, route in document["paths"].items() for method in route
    }
    assert described == {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route) for route in SERVICES[service]}


def test_an_unknown_caller_learns_nothing_from_other_methods(orchestrator: Flask) -> None:
    client = orchestrator.test_client()
    assert client.head("/status").status_code == 401
    assert client.options("/status").status_code == 401
    assert client.get("/status").headers["WWW-Authenticate"] == "Bearer"
