"""Sample the policy with torch alone: no LLM server, no Rollyard.

Slow and simple, for measuring a checkpoint while it is made. Temperature 1, no truncation of the
distribution, the tool answered in process.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from problems import Row
from tokenizer import TURN_END
from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_RESPONSE_TOKENS = 24


@dataclass(frozen=True, slots=True)
class PassRate:
    """Outcome of a set of problems, each tried once."""

    problems: int
    solved: int
    tool_calls: int
    solved_with_tool: int

    @property
    def pass_rate(self) -> float:
        return self.solved / self.problems

    @property
    def tool_rate(self) -> float:
        return self.tool_calls / self.problems

    @property
    def tool_accuracy(self) -> float:
        """Share of the problems with a tool call that were solved."""
        return self.solved_with_tool / self.tool_calls if self.tool_calls else 0.0


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    generator: torch.Generator,
) -> PassRate:
    """Let the policy try every row once, and return the outcome."""
    questions = [[{"role": "user", "content": row["question"]}] for row in rows]
    first = _answers(model, tokenizer, questions, generator)
    calls = {index: call for index, text in enumerate(first) if (call := _expression(text))}
    second_prompts = [
        [
            *questions[index],
            {"role": "assistant", "content": first[index]},
            {"role": "tool", "content": _product(call)},
        ]
        for index, call in calls.items()
    ]
    finals = dict(zip(calls, _answers(model, tokenizer, second_prompts, generator), strict=True))
    solved = {
        index for index, row in enumerate(rows) if finals.get(index, first[index]) == row["answer"]
    }
    return PassRate(len(rows), len(solved), len(calls), len(solved & calls.keys()))


@torch.no_grad()
def sample(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], generator: torch.Generator
) -> list[list[int]]:
    """One response to each prompt, up to and including the end-of-turn token."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        by_length[len(prompt)].append(index)
    responses: list[list[int]] = [[] for _ in prompts]
    for indices in by_length.values():
        batch = torch.tensor([list(prompts[index]) for index in indices])
        for index, response in zip(indices, _sample_batch(model, batch, generator), strict=True):
            responses[index] = response
    return responses


def _sample_batch(
    model: PreTrainedModel, tokens: torch.Tensor, generator: torch.Generator
) -> list[list[int]]:
    """Responses to prompts of one length: `tokens` is [batch, prompt length]."""
    end = model.config.eos_token_id
    prompt_length = tokens.shape[1]
    ended = torch.zeros(len(tokens), dtype=torch.bool)
    for _ in range(MAX_RESPONSE_TOKENS):
        probabilities = model(tokens).logits[:, -1].softmax(-1)
        drawn = torch.multinomial(probabilities, 1, generator=generator)
        tokens = torch.cat([tokens, drawn], dim=1)
        ended |= drawn[:, 0] == end
        if ended.all():
            break
    responses = tokens[:, prompt_length:].tolist()
    return [ids[: ids.index(end) + 1] if end in ids else ids for ids in responses]


def _answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Sequence[dict[str, str]]],
    generator: torch.Generator,
) -> list[str]:
    """The policy's next message in each conversation, as text without the end-of-turn token."""
    if not conversations:
        return []
    texts = tokenizer.apply_chat_template(
        list(conversations), tokenize=False, add_generation_prompt=True
    )
    prompts = tokenizer(texts, add_special_tokens=False).input_ids
    responses = sample(model, prompts, generator)
    return [tokenizer.decode(response).removesuffix(TURN_END) for response in responses]


def _expression(text: str) -> str | None:
    """The expression that the policy asks the tool to compute; None if it asks for none."""
    if text.startswith("<tool_call>") and text.endswith("</tool_call>"):
        return text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    return None


def _product(expression: str) -> str:
    left, times, right = expression.partition("*")
    if times and left.isdecimal() and right.isdecimal():
        return str(int(left) * int(right))
    return "error"
