"""A client written from the public contract alone."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests

SAMPLING = {
    "model": "hosted_vllm/policy",
    "api_key": "none",
    "temperature": 1.0,
    "top_p": 1.0,
    "max_iterations": 4,
    "max_output_tokens": 64,
    "max_model_len": 400,
    "token_level_generation": True,
}
PATIENCE_SECONDS = 60.0


def row(question: str = "37*48", answer: str = "1776", **more: Any) -> dict[str, Any]:
    return {
        "data_source": "arithmetic",
        "instance_id": question,
        "trajectory_id": 0,
        "question": question,
        "answer": answer,
        **more,
    }


class ProrlClient:
    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def post(self, path: str, **body: Any) -> requests.Response:
        return requests.post(
            self.url + path, json=body or None, headers=self._headers, timeout=PATIENCE_SECONDS
        )

    def status(self) -> requests.Response:
        return requests.get(f"{self.url}/status", headers=self._headers, timeout=PATIENCE_SECONDS)

    def process(self, instance: dict[str, Any], **more: Any) -> requests.Response:
        return self.post("/process", **{"instance": instance, "sampling_params": SAMPLING, **more})

    def begin(self, instance: dict[str, Any], **more: Any) -> "Future[requests.Response]":
        """A call under way."""
        answer: Future[requests.Response] = Future()

        def wait() -> None:
            try:
                answer.set_result(self.process(instance, **more))
            except requests.RequestException as error:
                answer.set_exception(error)

        threading.Thread(target=wait, daemon=True).start()
        return answer

    def jobs(self) -> int:
        """Jobs that wait or run."""
        jobs: int = self.status().json()["jobs"]
        return jobs

    @contextmanager
    def calling(self, instance: dict[str, Any], **more: Any) -> Iterator[None]:
        """A call under way inside the block, whose caller then hangs up."""
        place = urlsplit(self.url)
        call = {"instance": instance, "sampling_params": SAMPLING, **more}
        body = json.dumps(call).encode()
        head = f"POST /process HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection((place.hostname, place.port)) as caller:
            caller.sendall(head + body)
            yield
