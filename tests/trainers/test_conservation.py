"""Whatever a Batch is of, what each adapter makes of it has every sampled token once."""

import dataclasses
from array import array
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollyard.client import Client
from rollyard.messages import Batch, Trajectory
from rollyard.messages import Sequence as Tokens
from rollyard.trainers.completions import completions
from rollyard.trainers.nemo_rl.batches import rollout_fields
from rollyard.trainers.padding import padded
from rollyard.trainers.prime_rl import PrimeTrainer, micro_batches
from rollyard.trainers.rllm import members
from rollyard.trainers.sequences import training_sequences
from rollyard.trainers.skyrl import generator_output
from rollyard.trainers.trl.async_grpo import samples_of
from rollyard.trainers.trl.grpo import Rollouts
from rollyard.trainers.verl.fields import padded_fields, records
from tests.trainers.adapters import nemo_rl, plain, prime_rl, rllm, skyrl, trl_async, verl
from tests.trainers.contract import TEMPERATURE, Adapter, TrainedRow, all_adapters
from tests.trainers.nemo_rl_loop import flattened
from tests.trainers.training import matched
from tests.trajectories import batch as batch_of
from tests.trajectories import group, trajectory

Rows = Sequence[TrainedRow]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Groups of any size, and trajectories of any turns, split or not. No two tokens are alike but
    the first ones of a Group's prompts."""
    fresh = count(1000)

    def tokens(least: int = 0) -> list[int]:
        return [next(fresh) for _ in range(draw(st.integers(least, 3)))]

    def sequence(first: int, least: int) -> Trajectory:
        turns = draw(st.integers(least, 3))
        pieces = [("given", [first, *tokens(least=1)])]
        for _ in range(turns):
            pieces += [("sampled", tokens(least=1)), ("given", tokens())]
        versions = draw(st.lists(st.integers(0, 9), min_size=turns, max_size=turns))
        made = trajectory(*pieces, versions=tuple(versions))
        logprobs = array("f", [-0.5 * at * bit for at, bit in enumerate(made.loss_mask)])
        return msgspec.structs.replace(made, logprobs=logprobs, truncated=draw(st.booleans()))

    def member(first: int) -> tuple[float, Trajectory]:
        parts = draw(st.integers(1, 3))
        *earlier, last = [sequence(first, least=int(parts > 1)) for _ in range(parts)]
        fields = [{name: getattr(e, name) for name in Tokens.__struct_fields__} for e in earlier]
        whole = msgspec.structs.replace(last, earlier=tuple(Tokens(**each) for each in fields))
        return draw(st.floats(-100, 100, width=32)), whole

    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    return batch_of(
        *(group(f"g{n}", *(member(n) for _ in range(size))) for n, size in enumerate(sizes))
    )


def of_plain(batch: Batch) -> Rows:
    rows = padded(training_sequences(batch), pad_token_id=0)
    token_ids, mask = torch.from_numpy(rows.token_ids), torch.from_numpy(rows.loss_mask)
    logprobs, nothing = torch.from_numpy(rows.logprobs), torch.zeros(len(rows))
    return plain.trained_rows(rows, token_ids, mask, logprobs, nothing)


def of_trl(batch: Batch) -> Rows:
    class Given(Rollouts):
        def _batch(self, trainer: Any) -> Batch:
            return batch

    process = SimpleNamespace(num_processes=1, process_index=0)
    trainer = SimpleNamespace(model=SimpleNamespace(training=True), accelerator=process)
    rollouts = Given(Client("http://127.0.0.1:9", token="none"), None, Path())
    found = rollouts(["-"] * len(completions(batch)), trainer)
    return [responded(*row) for row in zip(*found.values(), strict=True)]


def of_trl_async(batch: Batch) -> Rows:
    return trl_async.trained_rows([dataclasses.asdict(each) for each in samples_of(batch, 1)])


def of_nemo_rl(batch: Batch) -> Rows:
    tokenizer = SimpleNamespace(pad_token_id=0, decode=str)
    fields = rollout_fields(batch, completions(batch), tokenizer, grouped=True)
    data = flattened(fields["message_log"])
    own = {"sample_mask": fields["loss_multiplier"], "rewards": fields["total_reward"]}
    nothing = torch.zeros(len(own["rewards"]), 1)
    old = data["generation_logprobs"]
    return nemo_rl.trained_rows({**data, **own, "prev_logprobs": old, "advantages": nothing})


def of_verl(batch: Batch) -> Rows:
    uids = [group.group_id for group in batch.groups]
    return [verl.trained_row(each) for each in records(batch, uids, step=1, version=9)]


def of_data_proto(batch: Batch) -> Rows:
    found = padded_fields(batch, pad_token_id=0)
    width = found["prompts"].shape[1]
    names = ("responses", "rollout_log_probs", "response_mask")
    rows = []
    for row, there in enumerate(found["attention_mask"].astype(bool)):
        prompt = found["prompts"][row, there[:width]].tolist()
        response, logprobs, mask = (found[name][row, there[width:]].tolist() for name in names)
        reward = float(found["rm_scores"][row].sum())
        rows.append(responded(prompt, response, logprobs, mask, reward))
    return rows


def of_skyrl(batch: Batch) -> Rows:
    identities = [
        skyrl.TrajectoryID(group.group_id, member)
        for group in batch.groups
        for member, _ in enumerate(group.results)
    ]
    return skyrl.trained_rows(generator_output(batch, identities))


def of_prime_rl(batch: Batch) -> Rows:
    trainer = PrimeTrainer(
        output_dir=Path(),
        model=Path(),
        data_ranks=1,
        sequence_tokens=30,
        advantages=lambda rewards, groups: np.ones_like(rewards),
    )
    made = [msgspec.to_builtins(each) for each in micro_batches(batch, trainer, TEMPERATURE)]
    named = [dict(zip(prime_rl.FIELDS, values, strict=True)) for values in made]
    return [row for each in named for row in prime_rl.trained_rows(each)]


def of_rllm(batch: Batch) -> Rows:
    return [row for each in members(batch) for row in rllm.trained_rows(*each)]


def responded(
    prompt: list[int], response: list[int], logprobs: list[float], mask: list[int], reward: float
) -> TrainedRow:
    return TrainedRow(
        token_ids=prompt + response,
        loss_mask=[False] * len(prompt) + [bit == 1 for bit in mask],
        logprobs=[0.0] * len(prompt) + logprobs,
        reward=reward,
    )


DATA_PROTO = dataclasses.replace(verl.ADAPTER, name="data_proto", last_sequence_alone=True)
ROWS: dict[str, Callable[[Batch], Rows]] = {
    "plain": of_plain,
    "trl": of_trl,
    "trl_async": of_trl_async,
    "nemo_rl": of_nemo_rl,
    "verl": of_verl,
    "data_proto": of_data_proto,
    "skyrl": of_skyrl,
    "prime-rl": of_prime_rl,
    "rllm": of_rllm,
}


@pytest.mark.parametrize("adapter", [*all_adapters(), DATA_PROTO], ids=lambda each: each.name)
@settings(deadline=None)
@given(batch=batches())
def test_each_sampled_token_is_there_once_with_what_belongs_to_it(
    adapter: Adapter, batch: Batch
) -> None:
    pairs = matched(adapter, batch, ROWS[adapter.name](batch))
    for sampled, row in pairs:
        tokens, own = sampled.tokens, range(len(row.token_ids))
        versions = {
            at: span.version for span in tokens.weight_spans for at in range(span.start, span.end)
        }
        assert [at for at in own if row.loss_mask[at]] == list(versions)
        assert row.logprobs is not None
        assert all(row.logprobs[at] == tokens.logprobs[at] for at in versions)
        given = row.weight_versions
        assert given is None or all(given[at] == version for at, version in versions.items())
        assert row.reward in (None, sampled.result.reward)
    named = {(sampled.group, row.group) for sampled, row in pairs if row.group is not None}
    assert len(named) == len({group for _, group in named})
    assert len(named) in (0, len(batch.groups))
