"""Tool use: the policy looks up prices, and says what it all costs."""

import random
import re

import verifiers as vf
from datasets import Dataset

PRICES = {"apple": 3, "bread": 7, "cheese": 11, "dates": 13}


def price(item: str) -> int:
    """The price of one item.

    Args:
        item: Name of the item.
    """
    return PRICES[item]


def right(completion: vf.Messages, answer: str) -> float:
    numbers = re.findall(r"\d+", str(completion[-1].content))
    return float(bool(numbers) and numbers[-1] == answer)


def load_environment(rows: int = 100, max_turns: int = 6) -> vf.Environment:
    draws = random.Random(0)
    given = []
    for _ in range(rows):
        bought = draws.sample(sorted(PRICES), 2)
        question = f"What do one {bought[0]} and one {bought[1]} cost together?"
        given.append({"question": question, "answer": str(sum(map(price, bought)))})
    return vf.ToolEnv(
        dataset=Dataset.from_list(given),
        tools=[price],
        rubric=vf.Rubric(funcs=[right]),
        max_turns=max_turns,
    )
