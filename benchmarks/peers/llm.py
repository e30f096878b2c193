"""The LLM server of a match: the scripted stand-in, which solves every question."""

from pathlib import Path

from benchmarks.peers.workload import MODEL
from launch.free_ports import free_port
from launch.processes import Started, module_command, start_process
from launch.readiness import answers, wait_until_ready

HOST = "127.0.0.1"
MAX_MODEL_LEN = 16_384
READY_SECONDS = 60.0


class LLM:
    """Use it as a context manager. It comes back at the same address."""

    def __init__(self, directory: Path, token_seconds: float) -> None:
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        self._log = directory / "llm.log"
        self._command = module_command(
            "llm_servers.scripted",
            *("--model", str(MODEL), "--port", str(port)),
            *("--replies", str(directory / "replies.jsonl")),
            *("--token-seconds", str(token_seconds), "--max-model-len", str(MAX_MODEL_LEN)),
        )
        self._running: Started | None = None

    def __enter__(self) -> "LLM":
        self.start()
        assert self._running is not None
        wait_until_ready(self._running, lambda: answers(f"{self.url}/health"), READY_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; it answers a little later."""
        self._running = start_process("llm", self._command, self._log)

    def kill(self) -> None:
        """End it: its port is closed, and its connections are reset."""
        if self._running is not None:
            self._running.kill()
