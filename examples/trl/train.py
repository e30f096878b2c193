"""TRL's GRPOTrainer on what Rollyard samples: the arithmetic policy learns to use its tool.

.venv/bin/rollyard up                                       # serves the policy that is trained
.venv-trl/bin/python examples/trl/train.py examples/arithmetic/policy
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

import rollyard
from rollyard.trainers.trl import Rollouts, grpo_trainer

GROUPS, GROUP_SIZE = 8, 8
EVALUATED = 89
SAMPLING = rollyard.Sampling(temperature=1.0, max_response_tokens=24)


def problems() -> Iterator[dict[str, str]]:
    """The dataset: rows without end. `data_source` names the environment that runs a row."""
    for a in itertools.cycle(range(10, 99)):
        yield {"data_source": "arithmetic", "question": f"{a}*{a + 1}", "answer": str(a * (a + 1))}


def config(output: Path, steps: int) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(output),
        max_steps=steps,
        per_device_train_batch_size=GROUPS * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        per_device_eval_batch_size=EVALUATED,
        num_generations_eval=1,
        temperature=SAMPLING.temperature,
        loss_type="dapo",
        epsilon=0.2,
        epsilon_high=0.28,
        beta=0.0,
        learning_rate=3e-4,
        lr_scheduler_type="constant",
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        logging_steps=1,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path, help="what the LLM servers serve")
    parser.add_argument("--url", default="http://127.0.0.1:8005", help="the orchestrator")
    parser.add_argument("--output", type=Path, default=Path("trl-output"))
    parser.add_argument("--run-id", default="trl")
    parser.add_argument("--steps", type=int, default=20)
    flags = parser.parse_args()
    settings = config(flags.output, flags.steps)
    with (
        rollyard.Client(flags.url) as client,
        client.run(
            problems(), run_id=flags.run_id, group_size=GROUP_SIZE, sampling=SAMPLING
        ) as run,
    ):
        rollouts = Rollouts(client, run, flags.output / "published")
        trainer = grpo_trainer()(
            model=AutoModelForCausalLM.from_pretrained(flags.policy, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(flags.policy),
            args=settings,
            eval_dataset=rollouts.dataset(list(itertools.islice(problems(), EVALUATED))),
            **rollouts.arguments(settings),
        )
        before = trainer.evaluate()["eval_reward"]
        rollouts.train(trainer)
        print(json.dumps({"before": before, "after": trainer.evaluate()["eval_reward"]}))


if __name__ == "__main__":
    main()
