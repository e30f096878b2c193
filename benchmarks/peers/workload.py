"""The scripted policy's part in the episodes: what it says, and how long that takes."""

import heapq
import json
from pathlib import Path

import msgspec

from benchmarks.peers.entrants import sums
from llm_servers.scripted.replies import Replies
from llm_servers.scripted.script import TOOL_CALL, TOOL_CALL_END, Vocabulary

MODEL = Path(__file__).parents[2] / "examples" / "arithmetic" / "policy"


def write_replies(path: Path, questions: int) -> None:
    """Write the file from which the policy solves every question."""
    replies = (Replies(sums.asks(each), (script(each),)) for each in range(questions))
    path.write_bytes(b"\n".join(map(msgspec.json.encode, replies)))


def ideal_seconds(questions: int, slots: int, token_seconds: float) -> float:
    """Time of all episodes if they took nothing but their tokens: each begins, in the order of the
    questions, as soon as a slot is free."""
    vocabulary = Vocabulary.load(MODEL)
    free = [0.0] * slots
    for question in range(questions):
        tokens = sum(len(vocabulary.encode(said)) + 1 for said in script(question))
        for _ in range(sums.SAMPLES):
            heapq.heapreplace(free, free[0] + tokens * token_seconds)
    return max(free)


def script(question: int) -> tuple[str, ...]:
    """What the policy says, turn by turn."""
    total, calls = 0, []
    for number in sums.numbers(question):
        call = {"name": "add", "arguments": {"a": total, "b": number}}
        calls.append(f"{TOOL_CALL}\n{json.dumps(call)}\n{TOOL_CALL_END}")
        total = sums.add(total, number)
    return (*calls, sums.answer(question))
