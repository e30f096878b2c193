"""Train the tiny policy with DAPO on rollouts from Rollyard: the example to copy.

    python examples/arithmetic/train.py --url http://127.0.0.1:8005 \\
        --policy examples/arithmetic/policy --output demo --work-dir demo/checkpoints

- Rollyard is seen through `rollyard.Client` alone.
- A Batch is acknowledged last: a trainer that dies before that is given the same Batch again.
- Stdout carries one line, the summary as JSON; everything for people goes to stderr.
"""

import argparse
import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from board import Board
from dapo import to_tensors
from display import Display
from history import (
    LEARNED_REWARD,
    MAX_LOGPROB_GAP,
    StepRecord,
    StepTimes,
    learned,
    record,
    summarize,
)
from learner import Learner, LearnerConfig
from problems import held_out_rows, training_dataloader
from report import write_report
from rich.console import Console
from transformers.utils import logging as transformers_logging

import rollyard
from rollyard.errors import RollyardError, WeightMismatch
from rollyard.messages import Batch, Counters, Criterion, Limits, Recycling, Sampling

SAMPLING = Sampling(temperature=1.0, max_response_tokens=24)
LIMITS = Limits(max_turns=3, max_tokens=256, job_seconds=60.0)
SCORED_TRAJECTORIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    started_at: float
    """Unix seconds of the start, which also make the run's name differ from an earlier one's."""
    requested_batch_size: int = 16
    group_size: int = 8
    max_steps: int = 60
    seed: int = 0

    def run_id(self, name: str) -> str:
        return f"arithmetic-{self.started_at:.0f}-{name}"


def train(
    client: rollyard.Client,
    learner: Learner,
    config: TrainConfig,
    display: Display,
    board: Board | None = None,
) -> list[StepRecord]:
    """Train until learned or out of steps."""
    run = client.run(
        training_dataloader(config.seed),
        run_id=config.run_id("train"),
        group_size=config.group_size,
        criterion=Criterion.REWARD_SPREAD,
        recycling=Recycling.RESUME,
        max_staleness=1,
        sampling=SAMPLING,
        limits=LIMITS,
    )
    steps: list[StepRecord] = []
    counters = Counters()
    while len(steps) < config.max_steps and not learned(steps):
        times = [time.time()]
        batch = run.rollout(config.requested_batch_size, on_progress=display.training)
        times.append(time.time())
        loss, rollout_gap = learn(learner, batch)
        times.append(time.time())
        served_gap = publish(run, learner, batch)
        run.ack(batch)
        times.append(time.time())
        steps.append(
            record(
                batch,
                counters,
                StepTimes(*times),
                step=len(steps) + 1,
                loss=loss,
                logprob_gap=max(rollout_gap, served_gap),
            )
        )
        counters = batch.counters
        display.stepped(steps[-1])
        if board is not None:
            board.stepped(batch, steps[-1])
    run.finish()
    return steps


def learn(learner: Learner, batch: Batch) -> tuple[float, float]:
    """Update the weights on `batch`, and return the loss and the largest difference from the
    rollouts' logprobs."""
    tensors = to_tensors(batch, pad_token_id=learner.pad_token_id)
    gap = learner.gap(tensors)
    check_gap(gap, f"what the LLM servers sampled at version {learner.version}")
    return learner.update(tensors), gap


def publish(run: rollyard.TrainingRun, learner: Learner, batch: Batch) -> float:
    """Let the LLM servers serve the new weights, and return the largest difference from their
    logprobs."""
    run.update_weights(learner.save(), learner.version)
    return compare_weights(run, learner, batch)


def evaluate(client: rollyard.Client, name: str, config: TrainConfig, display: Display) -> float:
    """The pass rate on the held-out problems, each sampled once at temperature 1."""
    rows = held_out_rows()
    run = client.run(
        rows,
        run_id=config.run_id(name),
        group_size=1,
        criterion=Criterion.COMPLETE,
        sampling=SAMPLING,
        limits=LIMITS,
    )
    batch = run.rollout(len(rows), on_progress=display.evaluating)
    run.ack(batch)
    run.finish()
    rewards = [result.reward or 0.0 for group in batch.groups for result in group.results]
    pass_rate = sum(rewards) / len(rewards)
    display.evaluated(name, pass_rate)
    return pass_rate


def compare_weights(run: rollyard.TrainingRun, learner: Learner, batch: Batch) -> float:
    """Let every LLM server score a few trajectories, and return the largest difference from the
    trainer."""
    largest = 0.0
    results = [result for group in batch.groups for result in group.results]
    for result in results[:: max(1, len(results) // SCORED_TRAJECTORIES)]:
        assert result.trajectory is not None  # `to_tensors` has read them all
        own = learner.logprobs(result.trajectory.token_ids)
        for server, logprobs in run.score(result.trajectory.token_ids).items():
            gap = (torch.frombuffer(logprobs, dtype=torch.float32) - own).abs().max().item()
            check_gap(gap, f"{server} after the update to version {learner.version}")
            largest = max(largest, gap)
    return largest


def check_gap(gap: float, where: str) -> None:
    """Raise `WeightMismatch` if trainer and rollout logprobs differ too much."""
    if not gap <= MAX_LOGPROB_GAP:  # also when the gap is NaN
        raise WeightMismatch(
            f"trainer and rollout logprobs differ by {gap:.3g}, more than {MAX_LOGPROB_GAP:g}, "
            f"in {where}: the LLM servers do not serve the weights that the trainer has",
            fix="check that the checkpoint has untied embeddings (tied ones keep the old output "
            "head when reloaded), that trainer and LLM servers use one dtype, and that the LLM "
            "servers were started with this policy",
        )


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(1)  # the LLM servers on this machine want the other cores
    transformers_logging.disable_progress_bar()
    console = Console(stderr=True)
    try:
        return run_example(arguments, console)
    except RollyardError as error:
        console.print(f"training stopped: {error}", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("training stopped: interrupted")
    return 1


def run_example(arguments: argparse.Namespace, console: Console) -> int:
    """Evaluate, train, evaluate and report. Returns the exit code."""
    config = TrainConfig(
        started_at=arguments.started_at,
        requested_batch_size=arguments.requested_batch_size,
        max_steps=arguments.max_steps,
        seed=arguments.seed,
    )
    learner = Learner(
        arguments.policy,
        arguments.work_dir,
        LearnerConfig(seed=config.seed, temperature=SAMPLING.temperature),
    )
    display = Display(console, config.max_steps)
    with contextlib.ExitStack() as ends:
        board = None
        if arguments.tensorboard is not None:
            board = ends.enter_context(Board(arguments.tensorboard, console))
        client = ends.enter_context(rollyard.Client(arguments.url))
        ends.enter_context(display)
        learner.version = client.weight_version() + 1
        client.update_weights(learner.save(), learner.version)  # whatever was served before
        pass_rate_before = evaluate(client, "before", config, display)
        steps = train(client, learner, config, display, board)
        pass_rate_after = evaluate(client, "after", config, display)
        occupancy = client.occupancy()
    summary = summarize(
        steps,
        pass_rate_before=pass_rate_before,
        pass_rate_after=pass_rate_after,
        requested_batch_size=config.requested_batch_size,
        total_seconds=time.time() - config.started_at,
    )
    report = write_report(arguments.output, summary, steps, occupancy)
    display.close_with(summary, str(report))
    if not learned(steps):
        console.print(
            f"not learned: the mean reward did not reach {LEARNED_REWARD} in two successive steps "
            f"within {config.max_steps} steps",
            soft_wrap=True,
        )
    print(json.dumps(summary.to_json()), flush=True)
    return 0 if summary.ok else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the tiny policy with DAPO on Rollyard.")
    parser.add_argument("--url", required=True, help="the orchestrator, as `rollyard up` prints it")
    parser.add_argument("--policy", type=Path, required=True, help="what the LLM servers serve")
    parser.add_argument("--output", type=Path, required=True, help="directory for the report")
    parser.add_argument("--work-dir", type=Path, required=True, help="directory for checkpoints")
    parser.add_argument("--tensorboard", type=Path, help="show the training from here, too")
    parser.add_argument("--started-at", type=float, default=time.time(), help="unix seconds")
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requested-batch-size", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
