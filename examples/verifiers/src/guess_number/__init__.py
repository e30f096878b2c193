"""Several turns: the policy guesses a number, and is told whether it is higher or lower."""

import random
import re

import verifiers as vf
from datasets import Dataset


class GuessNumber(vf.MultiTurnEnv):
    async def env_response(self, messages: vf.Messages, state: vf.State) -> vf.Messages:
        numbers = re.findall(r"\d+", str(messages[-1].content))
        if not numbers:
            return [vf.UserMessage(content="Guess a number.")]
        guess, number = int(numbers[-1]), int(state["answer"])
        if guess == number:
            state["found"] = True
            state["final_env_response"] = [vf.UserMessage(content="That is it.")]
            return []
        return [vf.UserMessage(content="Higher." if guess < number else "Lower.")]


def found(state: vf.State) -> float:
    return float(state.get("found", False))


def load_environment(most: int = 100, rows: int = 100, max_turns: int = 10) -> vf.Environment:
    draws = random.Random(0)
    question = f"I think of a number from 1 to {most}. Guess it."
    given = [{"question": question, "answer": str(draws.randint(1, most))} for _ in range(rows)]
    return GuessNumber(
        dataset=Dataset.from_list(given), rubric=vf.Rubric(funcs=[found]), max_turns=max_turns
    )
