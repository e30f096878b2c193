"""The proxy's port with TLS: callers with a session are served, others keep nobody out."""

import contextlib
import json
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from launch.certificate_files import CertificateFiles
from launch.certificates import make_certificate
from llm_servers.contract import GENERATE
from llm_servers.llm_connection import AddressOfLLM, LLMConnection, Untrusted
from rollyard.http import DirectSession
from rollyard.trust import CA_FILE_VARIABLE, trusting
from serving.crowd import MAX_OF_ONE_PEER
from tests.faults.crowds import connections
from tests.llm_fixtures import StartProxy
from tests.llm_servers.conftest import DEADLINE_SECONDS
from tests.llm_servers.test_proxy_door import BODY
from tests.waiting import until

HALF_A_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CertificateFiles:
    files = CertificateFiles(tmp_path / "tls")
    make_certificate(files, ())
    monkeypatch.setenv(CA_FILE_VARIABLE, str(files.ca))
    return files


@pytest.fixture
def proxy(start_proxy: StartProxy, scripted_llm: str, files: CertificateFiles) -> str:
    options = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    return start_proxy(scripted_llm, options=options)


def generated(proxy: str) -> int:
    """The number of tokens in an answer on a connection of its own."""
    with LLMConnection(AddressOfLLM.of(proxy), DEADLINE_SECONDS) as connection:
        connection.send("POST", GENERATE, BODY, DEADLINE_SECONDS)
        answer = connection.answer()
        (choice,) = json.loads(answer.content())["choices"]
        assert answer.status == 200
        return len(choice["token_ids"])


def line_to(proxy: str) -> socket.socket:
    address = urlsplit(proxy)
    return socket.create_connection((address.hostname, address.port), DEADLINE_SECONDS)


def test_responses_come_over_tls_one_after_the_other(proxy: str) -> None:
    with LLMConnection(AddressOfLLM.of(proxy), DEADLINE_SECONDS) as connection:
        for _ in range(3):
            connection.send("POST", GENERATE, BODY, DEADLINE_SECONDS)
            assert json.loads(connection.answer().content())["choices"]
            assert connection.is_free()


def test_a_caller_that_does_not_trust_its_ca_is_told_what_to_do(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CA_FILE_VARIABLE)
    with pytest.raises(Untrusted, match=f"not trusted here.*{CA_FILE_VARIABLE}"):
        generated(proxy)


def test_a_request_without_tls_is_told_how_to_call(proxy: str) -> None:
    answer = requests.get(proxy.replace("https", "http") + "/livez", timeout=DEADLINE_SECONDS)
    assert answer.status_code == 400
    assert "https://" in answer.json()["fix"]


def test_callers_that_do_not_shake_hands_are_hung_up_on(proxy: str) -> None:
    silent, half = line_to(proxy), line_to(proxy)
    half.sendall(HALF_A_HANDSHAKE)
    for caller in (silent, half):
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(1) == b""


def test_as_many_as_one_peer_may_have_that_do_not_shake_hands_keep_nobody_out(proxy: str) -> None:
    with connections(proxy, MAX_OF_ONE_PEER + 10, HALF_A_HANDSHAKE):
        assert generated(proxy) == 2


def test_a_renewed_certificate_is_shown_to_the_next_caller(
    proxy: str, files: CertificateFiles
) -> None:
    def serial() -> str:
        context = trusting(files.ca)
        with context.wrap_socket(line_to(proxy), server_hostname="localhost") as caller:
            shown = caller.getpeercert()
            assert shown is not None
            return str(shown["serialNumber"])

    before = serial()
    make_certificate(files, ())
    until("the new certificate to be shown", lambda: serial() != before)


def test_a_body_that_is_left_unread_gets_its_refusal(proxy: str) -> None:
    with DirectSession() as session:
        answer = session.post(f"{proxy}/no/such/route", data=b"x" * 2**20, timeout=DEADLINE_SECONDS)
    assert answer.status_code == 404


def test_a_version_that_is_too_old_is_refused(proxy: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(line_to(proxy))
