"""What every entrant says and hears: lines of JSON on stdout, one line on stdin.

{"workers": [PID, ...], "named": ""}    it is ready; one of these, or with this in its command
                                        line, may be killed
{"question": 3, "reward": 1.0}          a result
{"question": 3, "failed": "..."}        an episode without one
{"done": true}

It begins to play when a line comes, and may end when stdin does.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.entrants.sums import SAMPLES


class Options(argparse.Namespace):
    llm: str
    """URL of the LLM server, which answers vLLM's token routes and chat completions."""
    questions: int
    slots: int
    """Episodes at once."""
    directory: Path

    @property
    def tasks(self) -> list[int]:
        """The question of each episode, in the order in which they are to begin."""
        return [question for question in range(self.questions) for _ in range(SAMPLES)]


def parse() -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--llm", required=True)
    parser.add_argument("--questions", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args(namespace=Options())
    global _said
    # Packages write to stdout, too: theirs goes to the log.
    _said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return options


def ready(workers: Sequence[int] = (), named: str = "") -> None:
    """Say so, and wait until the episodes may begin. Workers that start later are named by a part
    of their command line."""
    _say(workers=list(workers), named=named)
    if not sys.stdin.readline():
        raise SystemExit("nobody waits for the episodes")


def finished(question: int, reward: float) -> None:
    _say(question=question, reward=reward)


def failed(question: int, reason: str) -> None:
    _say(question=question, failed=reason[:200])


def done() -> None:
    """Say so, and stay until it is known what the episodes have cost."""
    _say(done=True)
    sys.stdin.read()


def _say(**told: object) -> None:
    print(json.dumps(told), file=_said, flush=True)


_said = sys.stdout
