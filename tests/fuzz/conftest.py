"""A gateway in a process of its own, and what it holds."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import requests

from tests.agent_server.test_chat_template import with_template
from tests.waiting import until

TEMPLATE = (
    "{% if tools %}<|im_start|>{{ tools | tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or () %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""It shows tools and calls, and writes the past without its reasoning."""
MAX_GROWTH_BYTES = 48 * 2**20


class Session(msgspec.Struct, frozen=True):
    url: str
    key: str


class Recorded(msgspec.Struct, frozen=True):
    """What a session has recorded."""

    responses: int
    tokens: int
    """Number of tokens that are trained."""
    exact: bool
    """True if every response is trained once, behind the prompt that it was sampled after."""


class HostedGateway:
    def __init__(self, directory: Path) -> None:
        self._log = directory / "gateway.log"
        model = with_template(directory, TEMPLATE)
        with self._log.open("wb") as log:
            self._started = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.hosted_gateway", str(model)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._process = psutil.Process(self._started.pid)

    def open(self) -> Session:
        return msgspec.convert(self._tell(open=True), Session)

    def close(self, session: Session) -> Recorded:
        return msgspec.convert(self._tell(close=session.key), Recorded)

    def log(self) -> str:
        return self._log.read_text()

    def resident_bytes(self) -> int:
        return int(self._process.memory_info().rss)

    def handles(self) -> tuple[int, int]:
        """Numbers of threads and of descriptors."""
        return self._process.num_threads(), self._process.num_fds()

    def kill(self) -> None:
        self._started.kill()
        self._started.wait()

    def stop(self) -> None:
        assert self._started.stdin is not None
        self._started.stdin.close()
        self.kill()

    def _tell(self, **told: Any) -> Any:
        assert self._started.stdin is not None
        assert self._started.stdout is not None
        self._started.stdin.write(msgspec.json.encode(told) + b"\n")
        self._started.stdin.flush()
        return msgspec.json.decode(self._started.stdout.readline())


@pytest.fixture(scope="session")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedGateway]:
    """What it is sent must leave nothing behind: no thread, no descriptor, no error, no secret. And
    it works as before."""
    hosted = HostedGateway(tmp_path_factory.mktemp("gateway"))
    answered = ask(hosted)  # the tokenizer starts its threads
    before = hosted.handles()
    yield hosted
    assert ask(hosted) == answered
    until(
        "every thread and descriptor is given back",
        lambda: all(now <= then for now, then in zip(hosted.handles(), before, strict=True)),
    )
    log = hosted.log()
    assert "Traceback" not in log
    assert "sk-" not in log
    hosted.stop()


def ask(hosted: HostedGateway) -> object:
    """What a good request is answered, which depends on nothing but its conversation."""
    session = hosted.open()
    reply = requests.post(
        f"{session.url}/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}] * 3},
        headers={"Authorization": f"Bearer {session.key}"},
        timeout=20,
    )
    reply.raise_for_status()
    assert hosted.close(session) == Recorded(
        responses=1, tokens=reply.json()["usage"]["completion_tokens"], exact=True
    )
    return reply.json()["choices"]
