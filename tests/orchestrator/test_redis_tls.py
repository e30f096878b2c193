"""The queues in a Redis that is called with TLS: a real Redis, behind a door that speaks it."""

import argparse
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from launch.certificate_files import CertificateFiles
from launch.certificates import make_certificate
from orchestrator.queues import Queues
from orchestrator.queues.address import RedisAddress, add_redis_options, redis_of
from rollyard.errors import QueueUnavailable
from rollyard.messages import RunSettings
from rollyard.trust import CA_FILE_VARIABLE
from serving.tls import TLSFiles
from tests.queue_fixtures import PASSWORD


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    files = CertificateFiles(tmp_path / "tls")
    make_certificate(files, ())
    return files


@pytest.fixture
def door(redis_url: str, files: CertificateFiles) -> Iterator[int]:
    """The port of a door to Redis that ends TLS."""
    context = TLSFiles(certificate=files.certificate, key=files.key).load()
    redis = urlsplit(redis_url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = redis.hostname or "", redis.port or 0
        threading.Thread(target=_open, args=(listener, context, address), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _open(listener: socket.socket, context: ssl.SSLContext, redis: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=_join, args=(caller, context, redis), daemon=True).start()


def _join(caller: socket.socket, context: ssl.SSLContext, redis: tuple[str, int]) -> None:
    with (
        contextlib.suppress(OSError),
        socket.create_connection(redis) as inside,
        context.wrap_socket(caller, server_side=True) as outside,
    ):
        threading.Thread(target=_pass_on, args=(inside, outside), daemon=True).start()
        _pass_on(outside, inside)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def address(*options: str) -> RedisAddress:
    parser = argparse.ArgumentParser()
    add_redis_options(parser)
    return redis_of(parser.parse_args(options))


def queues_at(found: RedisAddress, redis_url: str) -> Queues:
    user = urlsplit(redis_url).username
    url = found.url.replace("rediss://", f"rediss://{user}@")
    return Queues(url, password=PASSWORD, prefix="rollyard:test:tls:", lease_seconds=1.0)


def test_the_queues_work_over_tls_with_the_ca_that_all_callers_trust(
    door: int, files: CertificateFiles, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CA_FILE_VARIABLE, str(files.ca))
    found = address("--redis-url", f"rediss://127.0.0.1:{door}")
    queues = queues_at(found, redis_url)
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    assert queues.runs.ids() == ["train"]


def test_a_redis_of_a_ca_that_is_not_trusted_is_refused(door: int, redis_url: str) -> None:
    queues = queues_at(address("--redis-url", f"rediss://127.0.0.1:{door}"), redis_url)
    with pytest.raises(QueueUnavailable, match="certificate verify failed"):
        queues.runs.ids()


def test_a_url_that_names_its_cas_itself_keeps_them(
    files: CertificateFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CA_FILE_VARIABLE, str(files.ca))
    own = f"rediss://redis:6379/0?ssl_ca_certs={tmp_path}/own.pem"
    assert address("--redis-url", own).url == own
    assert address("--redis-url", "redis://redis:6379").url == "redis://redis:6379"
