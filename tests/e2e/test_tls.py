"""A whole deployment whose services speak TLS, with a certificate that it makes for itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch.certificate_files import CertificateFiles
from launch.certificates import make_certificate
from launch.free_ports import free_ports
from rollyard.http import DirectSession
from tests.deployment_fixtures import SMALL, RunningDeployment, StartDeployment
from tests.e2e.test_rollout import assert_token_exact, rollout


def rollyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launch.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_deployment_over_tls_does_all_that_one_without_does(
    start_deployment: StartDeployment,
) -> None:
    deployment = start_deployment(*SMALL, "--tls", "--prorl", "--llm-proxy")
    urls = json.loads(deployment.line)
    assert {name for name, url in urls.items() if url.startswith("https://")} == {
        *("orchestrator", "agent-0", "llm-node", "llm-proxy", "PRORL_SERVER_URLS")
    }
    batch = rollout(urls["orchestrator"], size=4)
    assert len(batch.groups) == 4
    assert_token_exact(batch)
    assert_well(deployment, urls["orchestrator"])
    assert_door_answers(urls["PRORL_SERVER_URLS"], deployment)


def assert_well(deployment: RunningDeployment, url: str) -> None:
    checks = json.loads(rollyard("doctor", "--url", url, "--json").stdout)["checks"]
    asked = ("orchestrator", "agent servers ready", "LLM nodes ready", "weight versions")
    verdicts = {check["name"]: check["verdict"] for check in checks}
    assert [verdicts[name] for name in asked] == ["ok"] * 4
    logs = "".join(log.read_text() for log in (deployment.directory / "logs").iterdir())
    assert "no_handshake" not in logs


def assert_door_answers(url: str, deployment: RunningDeployment) -> None:
    ca_file = deployment.directory / "tls" / "ca.pem"
    with DirectSession(ca_file=ca_file) as session:
        assert session.get(f"{url}/livez", timeout=30).text == "ok\n"


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    files = CertificateFiles(tmp_path / "own")
    make_certificate(files, ("node1",))
    return files


def refused(files: CertificateFiles, tmp_path: Path, *options: str) -> str:
    ports = free_ports(agent_servers=2, llm_servers=1)
    ended = rollyard(
        *("up", "--llm", "scripted", "--directory", str(tmp_path / "yard")),
        *("--port", str(ports.orchestrator)),
        *("--tls-cert", str(files.certificate), "--tls-key", str(files.key), *options),
    )
    assert ended.returncode == 1
    return ended.stderr


def test_a_certificate_that_callers_would_refuse_is_refused_before_anything_starts(
    files: CertificateFiles, tmp_path: Path
) -> None:
    assert "a CA that is not trusted here" in refused(files, tmp_path)
    with_ca = ("--tls-ca", str(files.ca))
    assert "for another host" in refused(files, tmp_path, *with_ca, "--host", "127.0.0.2")
    assert not (tmp_path / "yard" / "logs").exists()


def test_a_host_that_is_not_this_machine_is_refused(
    files: CertificateFiles, tmp_path: Path
) -> None:
    assert "192.0.2.1 is not this machine" in refused(files, tmp_path, "--host", "192.0.2.1")
    assert "cannot be called at 0.0.0.0" in refused(files, tmp_path, "--host", "0.0.0.0")
