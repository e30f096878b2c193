"""What TRL's AsyncGRPOTrainer asks of a GPU, without one: for tests and small models.

Its attention, over samples that share their beginnings, is a kernel for GPUs. Here torch computes
it, with the scores of all pairs of tokens in memory. N tokens are cut into segments. Each segment
follows others, to the root, and each of its tokens sees those of its path that are not behind it.
H heads have D numbers each.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from transformers import AttentionInterface
from trl.experimental.async_grpo import async_grpo_trainer
from trl.experimental.async_grpo.packing import TREE_ATTENTION


@contextmanager
def without_gpu() -> Iterator[None]:
    """For the time in which the trainer is made, unless there is a GPU. TRL would look up how fast
    the GPU is, and has its kernel registered."""
    if torch.cuda.is_available():
        yield
        return
    with patch.object(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None):
        yield
    AttentionInterface.register(TREE_ATTENTION, tree_attention)


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """`query` is [1, H, N, D], `key` and `value` with fewer heads. -> [1, N, H, D]"""
    sharing = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(sharing, dim=1) for each in (key, value))
    scores = query @ key.transpose(-1, -2) * (given.get("scaling") or query.shape[-1] ** -0.5)
    if cap := given.get("softcap"):
        scores = (scores / cap).tanh() * cap
    seen = visible(
        given["tree_cu_seqlens_q"].tolist(),
        given["tree_kv_index"].split(given["tree_cu_seqlens_k"].diff().tolist()),
        given.get("sliding_window"),
    )
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return (weights @ value).transpose(1, 2), None


def visible(starts: list[int], paths: Sequence[torch.Tensor], window: int | None) -> torch.Tensor:
    """Which tokens each token sees, [N, N]. `starts` has where each segment starts, and N; each
    path has the tokens of a segment and of those before it."""
    seen = torch.zeros(starts[-1], starts[-1], dtype=torch.bool, device=paths[0].device)
    for start, end, path in zip(starts[:-1], starts[1:], paths, strict=True):
        depth = torch.arange(len(path), device=path.device)
        behind = depth[start - end :, None] - depth
        seen[start:end, path] = (behind >= 0) & (behind < (window or len(path)))
    return seen
