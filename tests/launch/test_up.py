"""`rollyard up` as a user meets it: a real command with real processes, and the scripted LLM."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launch.detached import down
from launch.free_ports import free_ports
from launch.local import clear, is_ready
from launch.lock import holder, locked
from launch.process_spec import ProcessSpec
from rollyard.client import Client
from serving.routes import Routes
from tests.deployment_fixtures import RunningDeployment
from tests.llm_fixtures import write_weights
from tests.processes import lives
from tests.serving_threads import served
from tests.waiting import until


def rollyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launch.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ctrl_c_stops_everything(scripted_deployment: RunningDeployment) -> None:
    scripted_deployment.process.send_signal(signal.SIGINT)
    assert scripted_deployment.wait_until_down() == 130
    assert scripted_deployment.survivors() == []
    assert complaints(scripted_deployment.directory) == []


def complaints(directory: Path) -> list[str]:
    """The lines of the logs that look like trouble."""
    trouble = ("error", "traceback", "exception", "failed")
    return [
        f"{log.name}: {line}"
        for log in (directory / "logs").iterdir()
        for line in log.read_text().splitlines()
        if any(word in line.lower() for word in trouble)
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """For a deployment that nobody holds in the end."""
    yield tmp_path / "deployment"
    if holder(tmp_path / "deployment") is not None:
        down(tmp_path / "deployment")


def test_a_detached_deployment_goes_on_by_itself_until_it_is_taken_down(directory: Path) -> None:
    ports = free_ports(agent_servers=2, llm_servers=1)
    where = ("--directory", str(directory))
    started = rollyard(
        *("up", "--detach", "--llm", "scripted", "--slots", "2", *where),
        *("--port", str(ports.orchestrator)),
    )
    assert started.returncode == 0, started.stderr
    url = json.loads(started.stdout)["orchestrator"]
    assert "agent-1" in rollyard("status", "--url", url).stdout
    launcher = holder(directory)
    assert launcher is not None
    members = psutil.Process(launcher).children(recursive=True)
    second = rollyard("up", "--detach", "--llm", "scripted", *where, "--port", "1025")
    assert f"stop it with `rollyard down --directory {directory}`" in second.stderr
    stopped = rollyard("down", *where)
    assert stopped.stdout == f"the rollyard in {directory} (pid {launcher}) is stopped\n"
    assert not any(map(lives, members))
    assert (directory / "logs" / "up.log").read_text() == "rollyard: stopped\n"
    again = rollyard("down", *where)
    assert again.returncode == 1
    assert again.stderr.startswith(f"rollyard: no rollyard runs in {directory}")


def test_weights_that_an_earlier_trainer_left_and_nobody_can_serve_are_told_of(
    directory: Path, tmp_path: Path
) -> None:
    port = str(free_ports(agent_servers=2, llm_servers=1).orchestrator)
    where = ("--directory", str(directory))
    up = ("up", "--detach", "--llm", "scripted", "--slots", "2", *where, "--port", port)
    url = json.loads(rollyard(*up).stdout)["orchestrator"]
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    write_weights(checkpoint, "trained")
    with Client(url) as client:
        client.update_weights(checkpoint, 1)
    assert rollyard("down", *where).returncode == 0
    shutil.rmtree(checkpoint)
    again = rollyard(*up)
    assert f"No job starts yet: no checkpoint at {checkpoint}" in again.stderr
    assert "held back; no checkpoint" in rollyard("status", "--url", url).stdout
    checks = json.loads(rollyard("doctor", "--url", url, "--json").stdout)["checks"]
    (weights,) = (each for each in checks if each["name"] == "weight versions")
    assert (weights["verdict"], f"local: no checkpoint at {checkpoint}" in weights["finding"]) == (
        "failed",
        True,
    )


def test_down_where_no_deployment_can_be_says_so(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    answer = rollyard("down", "--directory", str(file))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"rollyard: no rollyard runs in {file}")


def test_a_detached_deployment_that_does_not_start_says_why_at_once(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = rollyard(
            *("up", "--detach", "--llm", "scripted", "--directory", str(directory)),
            *("--port", port),
        )
    assert answer.returncode == 1
    assert f"rollyard: port {port} on 127.0.0.1, wanted for orchestrator" in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


def test_a_killed_llm_server_comes_back_and_is_told_of(
    scripted_deployment: RunningDeployment,
) -> None:
    url = scripted_deployment.url
    scripted_deployment.member("llm_servers.scripted").kill()
    until("it is told", lambda: "llm-0 is ready again" in scripted_deployment.errors.read_text())
    died, _ = scripted_deployment.errors.read_text().strip().splitlines()[-2:]
    log = scripted_deployment.directory / "logs" / "llm-0.log"
    assert f"rollyard: llm-0 was killed by SIGKILL; its log is {log}; it starts again in" in died
    parts = {each["name"]: each for each in status_of(url)["parts"]}
    assert (parts["llm-0"]["restarts"], parts["llm-0"]["state"]) == (1, "ready")
    assert parts["agent-0"]["restarts"] == 0
    assert "llm_servers.scripted" in psutil.Process(parts["llm-0"]["pid"]).cmdline()
    assert (
        f"llm-0\tready\t1\tit was killed by SIGKILL\t{log}"
        in rollyard("status", "--url", url).stdout
    )
    scripted_deployment.process.send_signal(signal.SIGINT)
    assert scripted_deployment.wait_until_down() == 130
    assert scripted_deployment.survivors() == []


def status_of(url: str) -> Any:
    return json.loads(rollyard("status", "--url", url, "--json").stdout)


def test_a_running_deployment_is_healthy(lasting_deployment: RunningDeployment) -> None:
    answer = rollyard("doctor", "--url", lasting_deployment.url, "--json")
    checks = json.loads(answer.stdout)["checks"]
    about_the_machine = {"cores", "memory", "disk space", "file descriptors", "processes"}
    bad = [c for c in checks if c["verdict"] != "ok" and c["name"] not in about_the_machine]
    assert bad == []
    assert len(checks) >= 20


def test_status_shows_the_servers_as_json(lasting_deployment: RunningDeployment) -> None:
    answer = rollyard("status", "--url", lasting_deployment.url, "--json")
    assert answer.returncode == 0
    status = json.loads(answer.stdout)
    assert [server["server_id"] for server in status["servers"]] == ["agent-0", "agent-1"]
    assert [server["slots"] for server in status["servers"]] == [4, 4]
    assert len(status["llm_nodes"]) == 1
    assert "agent-1" in rollyard("status", "--url", lasting_deployment.url).stdout


def test_a_second_deployment_on_the_same_ports_is_refused_and_harms_nothing(
    lasting_deployment: RunningDeployment, tmp_path: Path
) -> None:
    port = lasting_deployment.url.rsplit(":", 1)[1]
    options = ("--llm", "scripted", "--port", port, "--directory", str(tmp_path / "second"))
    answer = rollyard("up", *options)
    assert answer.returncode == 1
    assert f"port {port} on 127.0.0.1, wanted for orchestrator, is taken by pid" in answer.stderr
    assert rollyard("status", "--url", lasting_deployment.url).returncode == 0


def test_a_second_deployment_in_the_same_directory_is_refused(
    lasting_deployment: RunningDeployment,
) -> None:
    directory = str(lasting_deployment.directory)
    answer = rollyard("up", "--llm", "scripted", "--port", "1025", "--directory", directory)
    assert answer.returncode == 1
    assert (
        f"another rollyard (pid {lasting_deployment.process.pid}) runs in {directory}"
        in answer.stderr
    )


def test_a_second_demo_leaves_the_data_of_the_first_alone(tmp_path: Path) -> None:
    data = tmp_path / "deployment" / "redis" / "appendonly.aof"
    data.parent.mkdir(parents=True)
    data.write_text("the queues of the first demo")
    with locked(tmp_path / "deployment"):
        answer = rollyard("demo", "--llm", "scripted", "--output", str(tmp_path))
    assert answer.returncode == 1
    assert f"another rollyard (pid {os.getpid()}) runs in" in answer.stderr
    assert data.exists()


def test_a_fresh_deployment_removes_what_an_earlier_one_left_but_its_logs_and_not_its_own_lock(
    tmp_path: Path,
) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "redis" / "appendonly.aof").touch()
    with locked(tmp_path):
        clear(tmp_path)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["lock", "logs"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("up", "--model", "/no/such/model"), "the model directory /no/such/model does not exist"),
        (("up", "--llm-python", "/no/python"), "no vLLM environment at /no/python"),
        (
            ("up", "--llm", "scripted", "--directory", "/dev/null/x"),
            "cannot write in the directory",
        ),
        (("up", "--port", "70000"), "ports 70000 to 70005 do not exist"),
        (("status", "--url", "http://127.0.0.1:9"), "no answer from orchestrator at"),
        (("demo", "--llm-python", "/no/python"), "no vLLM environment at /no/python"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_exit_code_1(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    directory = {"up": "--directory", "demo": "--output"}.get(arguments[0])
    given = directory is None or directory in arguments
    options = () if given else (directory, str(tmp_path / "data"))
    answer = rollyard(*arguments, *options)
    assert answer.returncode == 1
    assert sentence in answer.stderr
    assert "; " in answer.stderr  # what to do next
    assert len(answer.stderr.strip().splitlines()) == 1


def test_a_proxy_of_the_user_does_not_hide_our_own_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with served(Routes("test").app) as url:
        port = int(url.rsplit(":", 1)[1])
        spec = ProcessSpec(
            kind="tests", name="test", command=(), port=port, ready_path="/livez", ready_seconds=1.0
        )
        assert is_ready(spec)


def test_bad_usage_is_exit_code_2() -> None:
    assert rollyard("up", "--slots", "0").returncode == 2
    assert rollyard("up", "--no-such-option").returncode == 2
