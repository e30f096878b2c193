"""The example service in a process of its own, and calls to it as bytes."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import requests

from launch.certificate_files import CertificateFiles
from launch.certificates import make_certificate
from launch.free_ports import free_port
from launch.readiness import answers, wait_until_ready
from rollyard.errors import LaunchError
from rollyard.http import DirectSession
from rollyard.trust import trusting
from tests.llm_fixtures import start_module
from tests.serving.example_service import SUBMIT_TOKEN

PATIENCE_SECONDS = 60.0
"""For what a loaded machine does late."""
SUBMIT = {"Authorization": f"Bearer {SUBMIT_TOKEN}"}
BATCH = {"batch_id": "b", "requested_batch_size": 2, "weight_version": None}


class Example:
    """Served with TLS if it is given files for a certificate, which it makes."""

    def __init__(self, log: Path, files: CertificateFiles | None = None) -> None:
        self.log = log
        self.port = free_port()
        self.files = files
        self.ca_file = None if files is None else files.ca
        self.url = f"{'http' if files is None else 'https'}://127.0.0.1:{self.port}"
        arguments = ["tests.serving.example_service", str(self.port)]
        if files is not None:
            make_certificate(files, ())
            arguments += [str(files.certificate), str(files.key)]
        self.started = start_module(arguments, log)

    def await_ready(self) -> None:
        try:
            wait_until_ready(
                self.started, lambda: answers(f"{self.url}/health", self.ca_file), PATIENCE_SECONDS
            )
        except LaunchError as error:
            pytest.fail(f"{error}; the end of its log:\n{self.log.read_text()[-3000:]}")

    def call(self, words: bytes = b"", receive_bytes: int = 0) -> socket.socket:
        """A connection on which `words` were sent."""
        caller = self.greeted(self.connect(receive_bytes))
        caller.sendall(words)
        return caller

    def greeted(self, caller: socket.socket) -> socket.socket:
        """The connection once the two have shaken hands, if they have to."""
        if self.ca_file is None:
            return caller
        return trusting(self.ca_file).wrap_socket(caller, server_hostname="127.0.0.1")

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        """A connection on which nothing was said, not even of TLS."""
        caller = socket.socket()
        if receive_bytes:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        caller.settimeout(PATIENCE_SECONDS)
        caller.connect(("127.0.0.1", self.port))
        return caller

    def session(self) -> requests.Session:
        return DirectSession(ca_file=self.ca_file)

    def ask(self, method: str, path: str, **given: Any) -> requests.Response:
        """The answer to a request on a connection of its own."""
        with self.session() as session:
            return session.request(method, self.url + path, timeout=PATIENCE_SECONDS, **given)

    def echo(self) -> Any:
        return self.ask("POST", "/echo", json=BATCH, headers=SUBMIT).json()

    def serial(self) -> str:
        """The number of the certificate that a new connection is shown."""
        caller = self.call()
        assert isinstance(caller, ssl.SSLSocket)
        with caller:
            shown = caller.getpeercert()
            assert shown is not None
            return str(shown["serialNumber"])
