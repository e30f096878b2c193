"""Scores of what was sampled, by torch and in float32: no vLLM takes part."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollyard.messages import Sequence as SampledSequence
from tests.llm_fixtures import VLLM_PYTHON

SECONDS = 1800.0

_FORWARD_PASS = """
import functools, json, sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)

@functools.cache
def weights(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()

for line in sys.stdin:
    case = json.loads(line)
    tokens = torch.tensor(case["token_ids"])[None]
    told = torch.tensor(case["logprobs"]).double()
    answer = []
    for checkpoint in case["checkpoints"]:
        model = weights(checkpoint)
        with torch.no_grad():
            hidden = model.model(tokens).last_hidden_state[0, :-1]
        gaps = []
        for start, end in case["spans"]:
            logits = model.lm_head(hidden[start - 1 : end - 1]).double() / case["temperature"]
            own = logits.log_softmax(-1).gather(-1, tokens[0, start:end, None])[:, 0]
            gaps.append((own - told[start:end]).abs().max().item())
        answer.append(gaps)
    print(json.dumps(answer))
"""


class SpanGap(msgspec.Struct, frozen=True):
    """How far the logprobs of one weight span are from torch's, at worst."""

    tokens: int
    own: float
    """Under the weights that the span names, in nats."""
    others: tuple[float, ...]
    """Under each of the other weights that sampled a part of its trajectory."""


def gaps(
    sequences: Sequence[tuple[SampledSequence, set[int]]],
    checkpoints: Mapping[int, Path],
    temperature: float,
) -> list[list[SpanGap]]:
    """The gap of each span of each sequence, which comes with the versions of its trajectory."""
    weights = [sorted({checkpoints[version] for version in each}) for _, each in sequences]
    cases = [
        _case(sequence, paths) | {"temperature": temperature}
        for (sequence, _), paths in zip(sequences, weights, strict=True)
    ]
    ended = subprocess.run(
        [str(VLLM_PYTHON), "-c", _FORWARD_PASS],
        input="\n".join(map(json.dumps, cases)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    answers = map(json.loads, ended.stdout.splitlines())
    return [
        _spans(sequence, checkpoints, dict(zip(paths, answer, strict=True)))
        for (sequence, _), paths, answer in zip(sequences, weights, answers, strict=True)
    ]


def _case(sequence: SampledSequence, checkpoints: list[Path]) -> dict[str, Any]:
    return {
        "token_ids": list(sequence.token_ids),
        "logprobs": list(sequence.logprobs),
        "checkpoints": list(map(str, checkpoints)),
        "spans": [(span.start, span.end) for span in sequence.weight_spans],
    }


def _spans(
    sequence: SampledSequence, checkpoints: Mapping[int, Path], found: dict[Path, list[float]]
) -> list[SpanGap]:
    """`found` has the gaps by checkpoint, and by span."""
    return [
        SpanGap(
            tokens=span.end - span.start,
            own=found[checkpoints[span.version]][number],
            others=tuple(
                of_checkpoint[number]
                for checkpoint, of_checkpoint in found.items()
                if checkpoint != checkpoints[span.version]
            ),
        )
        for number, span in enumerate(sequence.weight_spans)
    ]
