"""What the logprobs of tokens are, as torch computes them beside vLLM."""

import json
import subprocess
from pathlib import Path

from tests.llm_fixtures import VLLM_PYTHON

_TRUE_LOGPROBS = """
import json, sys, torch
from transformers import AutoModelForCausalLM
ids = torch.tensor(json.loads(sys.argv[1]))
for checkpoint in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        logits = model(ids[None]).logits[0, :-1]
    taken = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    print(json.dumps([0.0, *taken.tolist()]))
"""


def true_logprobs(token_ids: list[int], *checkpoints: Path) -> list[list[float]]:
    """As plain torch computes them with each checkpoint."""
    ended = subprocess.run(
        [str(VLLM_PYTHON), "-c", _TRUE_LOGPROBS, json.dumps(token_ids), *map(str, checkpoints)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [json.loads(line) for line in ended.stdout.splitlines()[-len(checkpoints) :]]
