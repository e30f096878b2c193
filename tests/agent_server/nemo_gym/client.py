"""NeMo-Gym's collector and NeMo-RL's consumer, as far as an agent server knows them."""

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests

PATIENCE_SECONDS = 60.0


def row(question: str = "37*48", answer: str = "1776", **more: Any) -> dict[str, Any]:
    asked = {"input": [{"role": "user", "content": question}], "temperature": 1.0, "top_p": 1.0}
    return {
        "data_source": "arithmetic",
        "question": question,
        "answer": answer,
        "responses_create_params": asked | {"max_output_tokens": 64},
        "agent_ref": {"name": "rollyard"},
        **more,
    }


class GymClient:
    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def run(self, row: dict[str, Any]) -> requests.Response:
        return self.post("/run", row)

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        return requests.post(
            self.url + path, json=body, headers=self._headers, timeout=PATIENCE_SECONDS
        )

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, headers=self._headers, timeout=PATIENCE_SECONDS)

    @contextmanager
    def running(self, row: dict[str, Any]) -> Iterator[None]:
        """A call under way inside the block, whose caller then hangs up."""
        place, body = urlsplit(self.url), json.dumps(row).encode()
        head = f"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection((place.hostname, place.port)) as caller:
            caller.sendall(head + body)
            yield


def sampled(output: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that are trained on. Fails where NeMo-RL would refuse the trajectory: the prompt of
    each has to begin with all tokens so far."""
    trained = [item for item in output if item.get("generation_token_ids")]
    assert trained, "nothing to train on"
    seen: list[int] = []
    for item in trained:
        prompt, said = item["prompt_token_ids"], item["generation_token_ids"]
        assert prompt[: len(seen)] == seen, "non-contiguous"
        assert len(item["generation_log_probs"]) == len(said)
        assert all(logprob <= 0 for logprob in item["generation_log_probs"])
        seen = prompt + said
    return trained
