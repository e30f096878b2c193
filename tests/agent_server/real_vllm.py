"""What the real vLLM has drawn, and how its tokens score under what it has loaded."""

import threading
import time
from collections.abc import Iterable

import requests

from llm_servers.server import LLMServer
from rollyard.messages import Sequence

DEADLINE_SECONDS = 60.0


def await_tokens(server: LLMServer, number: int) -> None:
    """Wait until the server has drawn so many more."""

    def drawn() -> float:
        text = requests.get(f"{server.url}/metrics", timeout=5).text
        lines = [line for line in text.splitlines() if line.startswith("vllm:generation_tokens_t")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    before, deadline, never = drawn(), time.monotonic() + DEADLINE_SECONDS, threading.Event()
    while drawn() < before + number:
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for {number} tokens"
        never.wait(0.01)


def worst_gap(server: LLMServer, sequences: Iterable[Sequence], version: int) -> float:
    """Between the logprobs of the tokens of `version` and their scores by what is loaded now."""
    gaps = []
    for sequence in sequences:
        both = zip(server.score(sequence.token_ids), sequence.logprobs, strict=True)
        gap = [abs(score - logprob) for score, logprob in both]
        for span in sequence.weight_spans:
            if span.version == version:
                gaps += gap[span.start : span.end]
    assert gaps, f"no token was sampled by version {version}"
    return max(gaps)
