"""What each token's logprob is, computed by torch, apart from the server that gave it.

It runs under the interpreter that has torch: `python truth.py FLIGHTS CHECKPOINT...`, with the
checkpoint of each weight version in turn. It prints, as JSON, for each response the difference of
every token's logprob from that under each of the versions.
"""

import json
import sys
from pathlib import Path


def main(flights: str, *checkpoints: str) -> None:
    import torch  # type: ignore[import-not-found]  # only its own interpreter has it
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    flown = json.loads(Path(flights).read_text())
    off: list[list[list[float]]] = [[] for _ in flown]
    for checkpoint in checkpoints:
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
        for each, found in zip(flown, off, strict=True):
            prompt, tokens = each["prompt"], torch.tensor(each["token_ids"])
            ids = torch.tensor([[*prompt, *each["token_ids"]]])
            with torch.no_grad():
                logits = model(ids).logits[0, len(prompt) - 1 : -1]
            true = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
            found.append((true - torch.tensor(each["logprobs"])).abs().tolist())
    print(json.dumps(off))


if __name__ == "__main__":
    main(*sys.argv[1:])
