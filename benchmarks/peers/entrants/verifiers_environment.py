"""The episodes as an environment of verifiers, a `ToolEnv` with one function."""

import verifiers as vf
from datasets import Dataset

from benchmarks.peers.entrants import sums


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return sums.add(a, b)


async def solved(completion: vf.Messages, info: vf.Info) -> float:
    return sums.reward(info["question"], str(completion[-1].content or ""))


def load_environment(questions: int) -> vf.Environment:
    rows = [
        {
            "prompt": [{"role": "user", "content": sums.text(question)}],
            "info": {"question": question},
        }
        for question in range(questions)
    ]
    return vf.ToolEnv(
        dataset=Dataset.from_list(rows),
        tools=[add],
        max_turns=sums.TURNS,
        rubric=vf.Rubric(funcs=[solved]),
    )
