"""`rollyard tls init`, as an operator uses it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from launch.commands import app

LOCAL = ["localhost", "127.0.0.1", "::1"]


def hosts_after(directory: Path, *options: str) -> list[str]:
    command = ["tls", "init", str(directory), *options, "--json"]
    answer = CliRunner().invoke(app, command, catch_exceptions=False)
    return list(json.loads(answer.stdout)["hosts"])


def test_a_certificate_is_renewed_for_the_hosts_that_it_had(tmp_path: Path) -> None:
    hosts = hosts_after(tmp_path, "--host", "gpu7.example.org", "--host", "10.0.0.7")
    assert hosts == ["gpu7.example.org", "10.0.0.7", *LOCAL]
    made = (tmp_path / "server.pem").read_bytes()
    assert hosts_after(tmp_path) == hosts
    assert (tmp_path / "server.pem").read_bytes() != made
    assert hosts_after(tmp_path, "--host", "gpu8.example.org") == ["gpu8.example.org", *LOCAL]


def test_a_certificate_whose_hosts_cannot_be_read_is_not_renewed_for_others(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("broken")
    answer = CliRunner().invoke(app, ["tls", "init", str(tmp_path)])
    assert "cannot read the hosts of" in str(answer.exception)
    assert (tmp_path / "server.pem").read_text() == "broken"
    assert hosts_after(tmp_path, "--host", "gpu7.example.org") == ["gpu7.example.org", *LOCAL]
