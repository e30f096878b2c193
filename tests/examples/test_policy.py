"""The committed policy is what the demo, the LLM servers and the trainer expect of it."""

import json
from pathlib import Path

import pytest
import torch
from problems import held_out_rows
from safetensors import safe_open
from sampler import measure
from tokenizer import byte_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

END_OF_TURN = 258


@pytest.fixture(scope="module")
def policy(policy_dir: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32).eval()


def test_it_is_small_enough_to_be_kept_in_the_repository(policy_dir: Path) -> None:
    assert sum(file.stat().st_size for file in policy_dir.iterdir()) <= 4_000_000


def test_its_embeddings_are_untied_and_its_own_output_head_is_stored(
    policy_dir: Path, policy: PreTrainedModel
) -> None:
    assert json.loads((policy_dir / "config.json").read_text())["tie_word_embeddings"] is False
    with safe_open(policy_dir / "model.safetensors", "pt") as weights:
        head = weights.get_tensor("lm_head.weight")
        assert not torch.equal(head, weights.get_tensor("model.embed_tokens.weight"))
    assert torch.equal(policy.lm_head.weight, head)


def test_its_vocabulary_and_special_tokens_are_the_tokenizers(
    policy_dir: Path, policy: PreTrainedModel
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(policy_dir)
    assert policy.config.vocab_size == len(tokenizer) == 261
    assert policy.config.eos_token_id == tokenizer.eos_token_id == END_OF_TURN
    assert policy.config.pad_token_id == tokenizer.pad_token_id == 256
    assert tokenizer.encode("<tool_call></tool_call>", add_special_tokens=False) == [259, 260]


def test_the_stored_tokenizer_is_the_one_the_script_makes(policy_dir: Path) -> None:
    stored, made = AutoTokenizer.from_pretrained(policy_dir), byte_tokenizer()
    assert stored.get_vocab() == made.get_vocab()
    assert stored.chat_template == made.chat_template


def test_it_sets_no_sampling_defaults(policy_dir: Path) -> None:
    stored = GenerationConfig.from_pretrained(policy_dir).to_diff_dict()
    assert set(stored) <= {"eos_token_id", "pad_token_id", "transformers_version"}


def test_it_solves_about_half_and_nearly_all_with_its_tool(
    policy_dir: Path, policy: PreTrainedModel
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(policy_dir)
    generator = torch.Generator().manual_seed(11)
    measured = measure(policy, tokenizer, held_out_rows(), generator)
    assert 0.40 <= measured.pass_rate <= 0.60
    assert 0.40 <= measured.tool_rate <= 0.60
    assert measured.tool_accuracy >= 0.97
