"""Rollyard beside a batch script of others: the plan, the port, and what the script is told."""

import socket
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest

from launch.deployment_tls import made_tls
from launch.fleet import FleetSettings, read_fleet
from launch.free_ports import free_port
from launch.node_processes import processes_of
from launch.slurm import beside
from launch.slurm.allocation import resolved
from launch.slurm.beside import BesideJob, SlurmTask, await_plan, opened, own_task, plan_beside
from launch.slurm.exports import exports, mounts, needed_paths
from rollyard.errors import LaunchError
from rollyard.http import Peer
from serving.api import new_app
from tests.serving_threads import served

TASK = SlurmTask(node="n2", nodes=("n1", "n2"), job_id="7", life="7.0")
ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2"}


@pytest.fixture
def settings(tmp_path: Path) -> FleetSettings:
    model = tmp_path / "model"
    model.mkdir()
    return FleetSettings(model=model, directory=tmp_path, queues=tmp_path / "redis", port=6001)


@pytest.fixture(autouse=True)
def known_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "resolved", lambda names: {name: ADDRESSES[name] for name in names})


def test_the_task_of_a_node_is_read_from_slurms_variables() -> None:
    given = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n2", "SLURM_JOB_NODELIST": "n[1-2]"}
    assert own_task(given) == TASK
    assert own_task({**given, "SLURM_RESTART_COUNT": "2"}).life == "7.2"
    with pytest.raises(LaunchError, match="there is no SLURMD_NODENAME"):
        own_task({"SLURM_JOB_ID": "7"})


def test_every_node_has_an_agent_server_and_the_first_the_queues(settings: FleetSettings) -> None:
    fleet = plan_beside(settings, TASK)
    names = {node: [spec.name for spec in processes_of(fleet, node)] for node in fleet.nodes}
    assert names == {"n1": ["redis", "orchestrator", "agent"], "n2": ["agent"]}
    used = {spec.port for node in fleet.nodes for spec in processes_of(fleet, node)}
    assert used < set(range(6001, 6007)), "the ports that NeMo-RL leaves to a sandbox"
    assert fleet.environment()["PRORL_SERVER_URLS"] == "http://10.0.0.1:6002+http://10.0.0.2:6002"


def test_agent_servers_are_ready_before_the_trainer_brings_llm_servers(
    settings: FleetSettings,
) -> None:
    agent = processes_of(plan_beside(settings, TASK), "n2")[-1]
    assert agent.ready_path == "/livez"
    assert "--llm-announced" in agent.command
    assert "--llm-proxy" not in agent.command
    assert float(agent.command[agent.command.index("--ready-seconds") + 1]) > 3600


def test_a_node_waits_for_the_plan_of_its_own_life_of_the_job(settings: FleetSettings) -> None:
    plan_beside(settings, SlurmTask(node="n1", nodes=("n1",), job_id="6", life="6.0"))
    later = threading.Timer(0.3, plan_beside, (settings, TASK))
    later.start()
    assert await_plan(settings.directory, TASK).nodes == ("n1", "n2")
    later.join()


def test_a_plan_that_never_comes_is_not_waited_for(
    settings: FleetSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "PLAN_SECONDS", 0.2)
    with pytest.raises(LaunchError, match="n1 has written no plan of this job"):
        await_plan(settings.directory, TASK)


def test_a_directory_has_one_job_at_a_time(
    settings: FleetSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app("orchestrator")
    app.add_url_rule("/livez", "livez", lambda: "ok")
    with served(app) as url:
        port = Peer(url, name="orchestrator").url.rpartition(":")[2]
        monkeypatch.setitem(ADDRESSES, "n1", "127.0.0.1")
        there = msgspec.structs.replace(settings, port=int(port))
        plan_beside(there, TASK)
        before = read_fleet(settings.directory)
        with pytest.raises(LaunchError, match="has a job already, 7"):
            plan_beside(there, SlurmTask(node="n1", nodes=("n1",), job_id="8", life="8.0"))
    assert read_fleet(settings.directory) == before


def test_the_sandbox_port_is_open_within_its_block_alone() -> None:
    port = free_port()
    with opened("127.0.0.1", port):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                assert connection.recv(1) == b""
        with pytest.raises(LaunchError, match=f"sandbox port {port} cannot be opened"):
            opened("127.0.0.1", port).__enter__()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_nodes_are_resolved_by_name_where_there_is_no_slurm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert resolved(["localhost"])["localhost"] in ("127.0.0.1", "::1")
    with pytest.raises(LaunchError, match="cannot be resolved"):
        resolved(["no-such-node.invalid"])


def test_the_exports_are_clean_shell_and_survive_any_directory(settings: FleetSettings) -> None:
    odd = FleetSettings(model=settings.model, directory=Path("/jobs/a b's"), queues=Path("/q"))
    script = exports(
        BesideJob(fleet=odd), "image:1", Path("/venv/bin"), [Path("/jobs"), Path("/q")]
    )
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "-"], input=script, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    # As the batch script runs it: in the text of a command of its own.
    shown = f'{script}\nexec() {{ printf "%s|" "$@"; }}\neval "$SANDBOX_COMMAND"\n'
    shown += 'echo "$SANDBOX_CONTAINER $SANDBOX_EXTRA_MOUNTS $NEMO_SKILLS_SANDBOX_PORT"'
    told = subprocess.run(["bash", "-euc", shown], capture_output=True, text=True, check=True)
    words = "/venv/bin/rollyard|slurm|beside-node|--directory|/jobs/a b's|"
    assert told.stdout == f"{words}image:1 /jobs:/jobs,/q:/q 6000\n"


def test_what_the_nodes_need_is_mounted_once(settings: FleetSettings, tmp_path: Path) -> None:
    blobs = tmp_path.parent / f"{tmp_path.name}-blobs"
    blobs.mkdir()
    (blobs / "weights").touch()
    (settings.model / "model.safetensors").symlink_to(blobs / "weights")
    fleet = msgspec.structs.replace(settings, tls=made_tls(tmp_path))
    mounted = mounts(needed_paths(BesideJob(fleet=fleet)))
    assert tmp_path in mounted
    assert blobs in mounted
    assert not [path for path in mounted if path.is_relative_to(tmp_path) and path != tmp_path]
    assert not [path for path in mounted if path.is_relative_to("/usr")]
    with pytest.raises(LaunchError, match="cannot be mounted"):
        mounts([Path("/jobs/a:b")])
