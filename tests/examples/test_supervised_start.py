import random

import pytest
import torch
from problems import row
from supervised_start import (
    NOT_TRAINED,
    SupervisedConfig,
    demonstration,
    encode,
    new_policy,
    train,
)
from tokenizer import byte_tokenizer
from transformers import PreTrainedTokenizerBase


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return byte_tokenizer()


def test_only_the_policys_own_tokens_are_trained(tokenizer: PreTrainedTokenizerBase) -> None:
    calls_tool = demonstration(row(37, 48), random.Random(0), tool_share=1.0)
    ids, labels = encode([calls_tool], tokenizer)
    assert tokenizer.decode(ids[0]) == (
        "<|im_start|>user\n37*48<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>37*48</tool_call><|im_end|>\n"
        "<|im_start|>tool\n1776<|im_end|>\n"
        "<|im_start|>assistant\n1776<|im_end|>\n"
    )
    trained = labels[0] != NOT_TRAINED
    assert torch.equal(labels[0][trained], ids[0][trained])
    assert tokenizer.decode(ids[0][trained]) == (
        "<tool_call>37*48</tool_call><|im_end|>1776<|im_end|>"
    )


def test_padding_is_never_trained(tokenizer: PreTrainedTokenizerBase) -> None:
    draws = random.Random(0)
    short = demonstration(row(37, 48), draws, tool_share=0.0)
    long = demonstration(row(37, 48), draws, tool_share=1.0)
    ids, labels = encode([short, long], tokenizer)
    assert (labels[ids == tokenizer.pad_token_id] == NOT_TRAINED).all()
    assert tokenizer.decode(ids[0][labels[0] != NOT_TRAINED]) == short[1]["content"] + "<|im_end|>"


def test_guesses_are_wrong_and_of_the_right_size() -> None:
    draws = random.Random(0)
    for _ in range(500):
        guess = int(demonstration(row(10, 11), draws, tool_share=0.0)[1]["content"])
        assert guess != 110
        assert 88 <= guess <= 132


def test_training_is_seeded_and_lowers_the_loss(
    tokenizer: PreTrainedTokenizerBase, capsys: pytest.CaptureFixture[str]
) -> None:
    def head_after_training() -> torch.Tensor:
        torch.manual_seed(1)
        policy = new_policy(tokenizer)
        train(policy, tokenizer, SupervisedConfig(steps=12, batch_size=8, warmup_steps=2))
        ids, labels = encode([demonstration(row(37, 48), random.Random(0), 1.0)], tokenizer)
        assert policy(ids, labels=labels).loss < torch.tensor(len(tokenizer)).log() - 0.5
        head: torch.Tensor = policy.lm_head.weight.detach()
        return head

    assert torch.equal(head_after_training(), head_after_training())
