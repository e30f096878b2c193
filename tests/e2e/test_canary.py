"""A secret of a whole deployment at work is nowhere but in its file."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
import redis
import requests

from rollyard import Client
from rollyard.errors import Forbidden, RollyardError, Unauthorized
from rollyard.http import Peer
from rollyard.tokens import Role, read_tokens
from tests.deployment_fixtures import RunningDeployment

PATHS = ("/status", "/metrics", "/occupancy", "/livez", "/readyz", "/runs", "/nowhere", "/jobs")


def test_a_token_is_in_no_log_no_reply_and_no_command_line(
    scripted_deployment: RunningDeployment,
) -> None:
    token_file = scripted_deployment.directory / "tokens"
    secrets = {grant.role: grant.token for grant in read_tokens(token_file)}
    password_file = scripted_deployment.directory / "redis-password"
    said = [*scripted_deployment.members.values(), scripted_deployment.errors.read_text()]
    said += _train(scripted_deployment.url, secrets[Role.SUBMIT])
    said += [
        _refused(scripted_deployment.url, token) for token in (*secrets.values(), "no-such-token")
    ]
    urls = [
        scripted_deployment.url,
        *re.findall(r"http://127\.0\.0\.1:\d+", scripted_deployment.line),
    ]
    for url, path, token in itertools.product(set(urls), PATHS, secrets.values()):
        answer = requests.get(url + path, headers={"Authorization": f"Bearer {token}"}, timeout=10)
        said += [answer.text, str(answer.headers)]
    said.append(_status_command(scripted_deployment))
    scripted_deployment.stop()
    files = [path for path in scripted_deployment.directory.rglob("*") if path.is_file()]
    assert len(files) >= 7
    said += [
        path.read_text(errors="replace")
        for path in files
        if path not in (token_file, password_file)
    ]
    said.append(scripted_deployment.errors.read_text())
    for token in (*secrets.values(), password_file.read_text().strip()):
        assert not [text[:200] for text in said if token in text]


def _train(url: str, token: str) -> list[str]:
    rows = (
        {"data_source": "arithmetic", "question": f"{n}*7", "answer": str(n * 7)}
        for n in itertools.count(10)
    )
    run = Client(url, token=token).run(rows, run_id="canary", group_size=4)
    batch = run.rollout(requested_batch_size=2)
    run.ack(batch)
    return [repr(batch), repr(run.finish())]


def _refused(url: str, token: str) -> str:
    """What a caller is told that may not do what it tries, or sends something odd."""
    try:
        Peer(url, name="orchestrator", token=token).post("/heartbeats", {"odd": token[:3]}, object)
    except (Unauthorized, Forbidden) as refusal:
        return repr(refusal)
    except RollyardError as error:
        return str(error)
    return ""


def _status_command(deployment: RunningDeployment) -> str:
    command = [sys.executable, "-m", "launch.cli", "status", "--url", deployment.url, "--json"]
    options = ["--token-file", str(deployment.directory / "tokens")]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout + done.stderr


def test_the_redis_of_a_deployment_is_closed_to_others(
    lasting_deployment: RunningDeployment,
) -> None:
    url = json.loads(lasting_deployment.line)["redis"]
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis.from_url(url).ping()
    password = (lasting_deployment.directory / "redis-password").read_text().strip()
    ours = redis.Redis.from_url(url, username="rollyard", password=password)
    assert ours.exists("rollyard:servers")
    refused: tuple[Callable[[], object], ...] = (
        lambda: ours.get("others"),
        lambda: ours.flushall(),
        lambda: ours.config_set("dir", "/"),
    )
    for command in refused:
        with pytest.raises(redis.exceptions.NoPermissionError):
            command()
