"""A trainer that learns nothing: it takes Batches of one Group, and publishes other weights every
two seconds, in the middle of whatever is under way."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy
from safetensors.numpy import load_file, save_file

from rollyard import Batch, Client, Limits, Result, Sampling, TrainingRun
from rollyard.errors import DeadlineExceeded, WeightMismatch
from rollyard.messages import NO_BOUND, RunStatus, Trajectory
from tests.llm_fixtures import WEIGHTS
from tests.real_doors.rows import Row, Rows, adapter, environment

GROUP_SIZE = 3
REQUESTED_AHEAD = 2
SECONDS = 1200.0
"""Time for all Batches, on a busy machine."""
SECONDS_BETWEEN = 2.0
"""Time between updates of the weights: shorter than any episode."""
CHECKPOINTS = 3
"""Weights that take turns, so that a version and the next two are never the same."""
NOISE = 0.004
"""Small enough for a policy that still calls tools, large enough to tell the versions apart."""
LIMITS = Limits(max_turns=6, max_tokens=16_000, job_seconds=300)
SAMPLING = Sampling(temperature=0.6, max_response_tokens=160)


class Trained(msgspec.Struct, frozen=True):
    batches: list[Batch]
    checkpoints: dict[int, Path]
    """Weight version -> the directory of its weights."""

    def lacking(self, rows: Rows) -> list[str]:
        """The environments of which there is nothing yet, and those behind an adapter of which no
        trajectory spans an update: an environment may ask for one short response."""
        spanned = {adapter(name) for name in rows if spans_an_update(self.results(name))}
        return [name for name in rows if adapter(name) not in spanned or not self.results(name)]

    def results(self, name: str) -> list[Result]:
        return [
            result
            for batch in self.batches
            for group in batch.groups
            if environment(group.prompt.instance) == name
            for result in group.results
        ]


def trajectory(result: Result) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


def versions(result: Result) -> set[int]:
    """The weights that sampled it."""
    sequences = trajectory(result).sequences
    return {span.version for sequence in sequences for span in sequence.weight_spans}


class Publisher:
    """Publishes other weights while a Batch is sampled, in the middle of what is under way."""

    def __init__(self, client: Client, policy: Path, directory: Path) -> None:
        self._client = client
        self._noisy = [noisy(policy, directory / str(seed), seed) for seed in range(CHECKPOINTS)]
        self.checkpoints = {client.weight_version(): policy}
        self._published = time.monotonic()

    def __call__(self, status: RunStatus) -> None:
        counters = status.counters
        at_work = counters.jobs_leased - counters.jobs_parked
        if at_work and time.monotonic() - self._published >= SECONDS_BETWEEN:
            version = max(self.checkpoints) + 1
            self.checkpoints[version] = self._noisy[version % CHECKPOINTS]
            self._client.update_weights(self.checkpoints[version], version)
            self._published = time.monotonic()


def train(client: Client, rows: Rows, policy: Path, directory: Path) -> Trained:
    """Take Batches until each environment has a trajectory of several weight versions, or time is
    over."""
    publish = Publisher(client, policy, directory)
    trained = Trained([], publish.checkpoints)
    deadline = time.monotonic() + SECONDS
    with client.run(
        wanted(rows, trained),
        run_id="doors",
        group_size=GROUP_SIZE,
        max_staleness=NO_BOUND,
        sampling=SAMPLING,
        limits=LIMITS,
    ) as run:
        for _ in range(REQUESTED_AHEAD):
            run.request(1)
        while trained.lacking(rows) and (left := deadline - time.monotonic()) > 0:
            try:
                batch = next_batch(run, publish, left)
            except DeadlineExceeded:
                break
            run.request(1)
            run.ack(batch)
            trained.batches.append(batch)
            print(f"{told(batch)}; lacking: {trained.lacking(rows)}", flush=True)
        run.finish()
    return trained


def next_batch(run: TrainingRun, publish: Publisher, seconds: float) -> Batch:
    try:
        return run.rollout(1, on_progress=publish, timeout_seconds=seconds)
    except WeightMismatch:  # said once of each Batch that is older than the weights it is of
        return run.rollout(1, timeout_seconds=seconds)


def wanted(rows: Rows, trained: Trained) -> Iterator[Row]:
    """A dataset without end, in which those environments take turns of which something lacks."""
    for number in itertools.count():
        yield from (rows[name](number) for name in trained.lacking(rows) or rows)


def told(batch: Batch) -> str:
    names = ", ".join(sorted({environment(group.prompt.instance) for group in batch.groups}))
    counters = batch.counters
    return (
        f"{batch.report.seconds:.0f} s, {names}; so far {counters.groups_filtered} filtered, "
        f"{counters.attempts_stopped} attempts stopped, {counters.attempts_failed} failed"
    )


def spans_an_update(results: list[Result]) -> bool:
    return any(len(versions(result)) > 1 for result in results)


def noisy(policy: Path, checkpoint: Path, seed: int) -> Path:
    """The policy's weights with noise, as a checkpoint of their own."""
    draws = numpy.random.default_rng(seed)
    tensors = {
        name: tensor + NOISE * draws.standard_normal(tensor.shape, numpy.float32)
        for name, tensor in load_file(policy / WEIGHTS).items()
    }
    checkpoint.mkdir()
    save_file(tensors, checkpoint / WEIGHTS, metadata={"format": "pt"})
    (checkpoint / "config.json").write_bytes((policy / "config.json").read_bytes())
    return checkpoint
