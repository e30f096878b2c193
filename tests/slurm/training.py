"""What docs/nemo-rl.md leaves to the trainer: LLM servers, rows, and what is done with a Batch.

- The LLM servers are scripted ones that speak as SGLang's, with which NeMo-RL can sample. They
  start when this is imported, and end with the program.
- Each line of the file `batches` is a Batch: its id, the prompts of its groups, agent server ->
  results, and the weight versions of its tokens.
- While there is a file `hold`, no training ends.
"""

import atexit
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import rollyard
from launch.demo import POLICY
from launch.free_ports import free_range
from launch.readiness import answers
from tests.waiting import until

HERE = Path(os.environ["TRAINING_DIRECTORY"])
STARTED_SECONDS = 120.0


def start_llm_servers() -> list[str]:
    """The URLs of two LLM servers, as clients of OpenAI write them."""
    urls = []
    for seed, port in enumerate(free_range(2)):
        server = ("-m", "llm_servers.scripted", "--kind", "sglang", "--model", str(POLICY))
        command = [sys.executable, *server, "--port", str(port), "--seed", str(seed)]
        command += ["--token-seconds", "0.02"]  # a Batch outlasts the time to hear of a version
        atexit.register(subprocess.Popen(command).terminate)
        urls.append(f"http://127.0.0.1:{port}")
    for url in urls:
        until(f"{url} is healthy", partial(answers, f"{url}/health"), STARTED_SECONDS)
    return [f"{url}/v1" for url in urls]


def rows() -> Iterator[dict[str, str]]:
    """All products of two numbers of two digits, of which the demo's policy solves about half."""
    for left, right in itertools.product(range(10, 100), repeat=2):
        question, answer = f"{left}*{right}", str(left * right)
        yield {"data_source": "arithmetic", "question": question, "answer": answer}


def train(batch: rollyard.Batch) -> None:
    """Write the Batch down, and hold on if that is wanted."""
    results = [result for group in batch.groups for result in group.results]
    trajectories = [each.trajectory for each in results if each.trajectory is not None]
    spans = [span for each in trajectories for span in each.weight_spans]
    line = {
        "batch": batch.batch_id,
        "prompts": [group.prompt.prompt_id for group in batch.groups],
        "servers": Counter(result.lease.server_id for result in results),
        "versions": sorted({span.version for span in spans}),
    }
    with (HERE / "batches").open("a") as file:
        file.write(json.dumps(line) + "\n")
    until("nobody holds on", lambda: not (HERE / "hold").exists(), 600.0)


LLM_SERVERS = start_llm_servers()
