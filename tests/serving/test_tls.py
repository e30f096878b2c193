"""TLS of a service: who speaks it is served, and whoever does not keeps nobody out."""

import json
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import psutil
import pytest
from cryptography.hazmat.primitives import serialization

from launch.certificate_files import CertificateFiles
from launch.certificates import make_certificate
from rollyard.errors import InvalidMessage, LaunchError, Unavailable
from rollyard.http import Peer
from rollyard.messages import Accepted
from serving.bind import Bind
from serving.crowd import MAX_OF_ONE_PEER
from serving.tls import TLSFiles
from tests.faults.crowds import connections
from tests.serving.example import BATCH, SUBMIT, Example
from tests.serving.example_service import THREADS
from tests.waiting import until

HALF_A_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01"
LOOK = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
SILENT = 3 * THREADS


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    directory = tmp_path_factory.mktemp("example")
    example = Example(directory / "log", CertificateFiles(directory))
    try:
        example.await_ready()
        yield example
    finally:
        example.started.kill()


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    files = CertificateFiles(tmp_path)
    make_certificate(files, ())
    return files


def status_on(caller: socket.socket) -> int:
    """The status of the answer, which is read to its end."""
    response = HTTPResponse(caller)
    response.begin()
    response.read()
    return response.status


def test_who_says_nothing_or_half_a_handshake_is_hung_up_on(example: Example) -> None:
    callers = [example.connect() for _ in range(2)]
    callers[1].sendall(HALF_A_HANDSHAKE)
    for caller in callers:
        assert caller.recv(1) == b""


@pytest.mark.parametrize("said", [b"", HALF_A_HANDSHAKE], ids=["nothing", "half a handshake"])
def test_a_crowd_that_does_not_shake_hands_holds_no_thread(example: Example, said: bytes) -> None:
    (worker,) = psutil.Process(example.started.process.pid).children()
    threads = worker.num_threads()
    with connections(example.url, SILENT, said):
        for _ in range(THREADS):
            assert example.ask("GET", "/livez").text == "ok\n"
            assert example.echo() == BATCH
        assert worker.num_threads() <= threads + THREADS + 1  # those of the answers


def test_as_many_silent_connections_as_one_peer_may_have_keep_nobody_out(example: Example) -> None:
    with connections(example.url, MAX_OF_ONE_PEER + 10, HALF_A_HANDSHAKE):
        assert example.echo() == BATCH


def test_a_request_without_tls_is_told_how_to_call(example: Example) -> None:
    peer = Peer(example.url.replace("https", "http"), name="example")
    with pytest.raises(InvalidMessage, match=r"TLS alone.*https://"):
        peer.get("/readyz", Accepted)
    caller = example.connect()
    caller.sendall(LOOK)
    response = HTTPResponse(caller)
    response.begin()
    assert response.status == 400
    assert "https://" in json.loads(response.read())["fix"]


def test_a_caller_of_the_last_version_that_is_too_old_is_refused(example: Example) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        context.wrap_socket(example.connect())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_later_versions_are_spoken(example: Example, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(example.ca_file))
    context.minimum_version = context.maximum_version = version
    with context.wrap_socket(example.connect(), server_hostname="localhost") as caller:
        caller.sendall(LOOK)
        assert b" 200 " in caller.recv(64)


def test_a_renewed_certificate_is_shown_to_the_next_caller_and_ends_no_connection(
    example: Example,
) -> None:
    assert example.files is not None
    before, caller = example.serial(), example.call(LOOK)
    assert status_on(caller) == 200
    make_certificate(example.files, ())
    until("the new certificate to be shown", lambda: example.serial() != before)
    caller.sendall(LOOK)
    assert status_on(caller) == 200


def test_a_certificate_that_does_not_fit_its_key_changes_nothing_until_it_does(
    example: Example, tmp_path: Path
) -> None:
    assert example.files is not None
    before, key = example.serial(), example.files.key.read_bytes()
    make_certificate(example.files, ())
    new = example.files.key.read_bytes()
    example.files.key.write_bytes(key)

    def is_refused() -> bool:
        assert example.serial() == before
        return "certificate_not_replaced" in example.log.read_text()

    until("the pair to be looked at", is_refused)
    example.files.key.write_bytes(new)
    until("the new certificate to be shown", lambda: example.serial() != before)


def test_a_caller_that_leaves_in_the_middle_of_a_handshake_is_forgotten(example: Example) -> None:
    (worker,) = psutil.Process(example.started.process.pid).children()

    def sockets() -> int:
        return len(worker.net_connections("tcp"))

    until("earlier connections to have gone", lambda: sockets() <= 2)
    with connections(example.url, SILENT, HALF_A_HANDSHAKE):
        until("all to be there", lambda: sockets() >= SILENT)
    until("all to have gone", lambda: sockets() <= 2)


def test_what_a_caller_sends_in_one_record_is_answered_wherever_it_ends(example: Example) -> None:
    body = json.dumps(BATCH).encode()
    head = (
        f"POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: {SUBMIT['Authorization']}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    caller = example.call(head)
    caller.sendall(body + head + body + head + body)
    with caller.makefile("rb") as answers:
        for _ in range(3):
            while answers.readline() != b"\r\n":
                pass
            assert json.loads(answers.read(len(json.dumps(BATCH, separators=(",", ":"))))) == BATCH


def test_tls_at_a_port_without_it_is_refused_at_once(tmp_path: Path) -> None:
    example = Example(tmp_path / "log")
    try:
        example.await_ready()
        peer = Peer(example.url.replace("http", "https"), name="example")
        with pytest.raises(Unavailable, match=r"does not speak TLS; use a URL .* http://"):
            peer.get("/readyz", Accepted)
    finally:
        example.started.kill()


def test_an_address_with_a_certificate_is_announced_with_https(files: CertificateFiles) -> None:
    tls = TLSFiles(certificate=files.certificate, key=files.key)
    assert Bind(port=8005, tls=tls).url == "https://127.0.0.1:8005"


def test_a_key_that_everyone_may_read_is_refused(files: CertificateFiles) -> None:
    files.key.chmod(0o604)
    with pytest.raises(LaunchError, match="everyone on this machine may read the key"):
        TLSFiles(certificate=files.certificate, key=files.key)


def test_files_that_do_not_fit_are_refused_with_their_names(
    files: CertificateFiles, tmp_path: Path
) -> None:
    with pytest.raises(LaunchError, match=f"{files.certificate}.*{files.ca_key}: KEY_VALUES"):
        TLSFiles(certificate=files.certificate, key=files.ca_key)
    with pytest.raises(LaunchError, match="No such file"):
        TLSFiles(certificate=tmp_path / "none", key=files.key)
    (tmp_path / "text").write_text("nothing in PEM")
    with pytest.raises(LaunchError, match="cannot serve the certificate"):
        TLSFiles(certificate=tmp_path / "text", key=files.key)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(
    files: CertificateFiles, tmp_path: Path
) -> None:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"a password")
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = tmp_path / "locked"
    locked.write_bytes(key.private_bytes(pem, kind, encryption))
    locked.chmod(0o600)
    with pytest.raises(LaunchError, match="has a password"):
        TLSFiles(certificate=files.certificate, key=locked)
