"""Why a caller refuses a server: each reason has a sentence that names the address, and a mend."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask import Flask, Response

from launch.certificate_files import CertificateFiles
from launch.certificates import make_certificate
from llm_servers.llm_connection import AddressOfLLM, LLMConnection, Untrusted
from rollyard import Client, codec
from rollyard.errors import LaunchError, OrchestratorUnavailable
from rollyard.http import orchestrator_at
from rollyard.left_files import left_for_clients
from rollyard.messages import Accepted
from rollyard.trust import CA_FILE_VARIABLE, trusting
from serving.tls import TLSFiles
from tests.serving_threads import served

FIVE_MINUTES_AGO = -5 / (24 * 60)
"""In days: certificates begin a little before they are made."""


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "own")


@pytest.fixture
def other_ca(tmp_path: Path) -> Path:
    files = CertificateFiles(tmp_path / "other")
    make_certificate(files, ())
    return files.ca


@contextmanager
def serving(files: CertificateFiles, host: str = "127.0.0.1") -> Iterator[str]:
    app = Flask("example")

    @app.get("/readyz")
    def readyz() -> Response:
        return Response(codec.encode(Accepted()), mimetype=codec.MSGPACK)

    tls = TLSFiles(certificate=files.certificate, key=files.key)
    with served(app, host=host, tls=tls.load()) as url:
        yield url


def why(url: str, ca_file: Path | None = None) -> OrchestratorUnavailable:
    with pytest.raises(OrchestratorUnavailable) as caught:
        orchestrator_at(url, ca_file=ca_file).get("/readyz", Accepted)
    assert url in caught.value.message
    assert caught.value.lasts
    return caught.value


def test_a_ca_that_is_not_trusted_is_named_with_where_to_name_it(files: CertificateFiles) -> None:
    make_certificate(files, ())
    with serving(files) as url:
        error = why(url)
    assert "a CA that is not trusted here" in error.message
    assert CA_FILE_VARIABLE in error.fix


def test_a_certificate_of_another_ca_is_refused(files: CertificateFiles, other_ca: Path) -> None:
    make_certificate(files, ())
    with serving(files) as url:
        assert "a CA that is not trusted here" in why(url, other_ca).message


def test_an_expired_certificate_says_so(files: CertificateFiles) -> None:
    make_certificate(files, (), FIVE_MINUTES_AGO)
    with serving(files) as url:
        error = why(url, files.ca)
    assert "its certificate has expired" in error.message
    assert "put a new one in its place" in error.fix


def test_a_certificate_for_another_host_names_both(files: CertificateFiles) -> None:
    make_certificate(files, ("node1",))
    with serving(files, host="127.0.0.2") as url:
        error = why(url, files.ca)
    assert "its certificate is for another host" in error.message
    assert "127.0.0.2" in error.message
    assert f"use a name in {url} that is in the certificate" in error.fix


def test_a_file_without_cas_says_where_it_was_named(
    files: CertificateFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(files, ())
    (tmp_path / "text").write_text("nothing in PEM")
    with serving(files) as url:
        for name, reason in (("none", "No such file"), ("text", "")):
            monkeypatch.setenv(CA_FILE_VARIABLE, str(tmp_path / name))
            error = why(url)
            assert (
                f"cannot read the CA certificates in {tmp_path / name}: {reason}" in error.message
            )
            assert CA_FILE_VARIABLE in error.fix


def test_a_client_does_not_repeat_what_only_a_person_can_mend(files: CertificateFiles) -> None:
    make_certificate(files, ())
    with (
        serving(files) as url,
        Client(url, patience_seconds=1e6) as client,
        pytest.raises(OrchestratorUnavailable, match="a CA that is not trusted here"),
    ):
        client.status()


def test_an_llm_server_is_refused_for_the_same_reasons(files: CertificateFiles) -> None:
    make_certificate(files, ())
    with serving(files) as url, pytest.raises(Untrusted, match=f"not trusted.*{CA_FILE_VARIABLE}"):
        LLMConnection(AddressOfLLM.of(url), 10.0)


@pytest.mark.parametrize("way", ["argument", "environment", "left"])
def test_a_ca_is_trusted_however_it_is_named(
    files: CertificateFiles, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_certificate(files, ())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if way == "environment":
        monkeypatch.setenv(CA_FILE_VARIABLE, str(files.ca))
    left = files.ca if way == "left" else None
    with serving(files) as url, left_for_clients(url, tmp_path / "tokens", left):
        peer = orchestrator_at(url, ca_file=files.ca if way == "argument" else None)
        assert peer.get("/readyz", Accepted) == Accepted()
        if way != "argument":
            with LLMConnection(AddressOfLLM.of(url), 10.0) as connection:
                connection.send("GET", "/readyz", b"", 10.0)
                assert connection.answer().status == 200


def test_a_ca_that_takes_the_place_of_another_is_trusted_by_calls_to_come(
    files: CertificateFiles, other_ca: Path, tmp_path: Path
) -> None:
    make_certificate(files, ())
    named = tmp_path / "named"
    named.write_bytes(other_ca.read_bytes())
    with serving(files) as url:
        peer = orchestrator_at(url, ca_file=named)
        with pytest.raises(OrchestratorUnavailable):
            peer.get("/readyz", Accepted)
        (tmp_path / "new").write_bytes(files.ca.read_bytes())
        (tmp_path / "new").replace(named)
        assert peer.get("/readyz", Accepted) == Accepted()


def test_the_usual_cas_stay_trusted_beside_ones_own(other_ca: Path) -> None:
    usual = {cert["serialNumber"] for cert in trusting(None).get_ca_certs()}
    assert usual < {cert["serialNumber"] for cert in trusting(other_ca).get_ca_certs()}


def test_a_ca_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot read the CA certificates"):
        trusting(tmp_path / "none")
