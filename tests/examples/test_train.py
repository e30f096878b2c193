import argparse
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import train as example
from display import Display
from fake_rollyard import FakeClient, FakeLLM, KeepsOldHead
from learner import Learner, LearnerConfig
from rich.console import Console
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

import rollyard
from rollyard.errors import OrchestratorUnavailable, RollyardError, WeightMismatch

CONFIG = example.TrainConfig(started_at=1000.0, requested_batch_size=2, group_size=8, max_steps=3)


@pytest.fixture
def display() -> Iterator[Display]:
    with Display(Console(file=io.StringIO()), CONFIG.max_steps) as shown:
        yield shown


@pytest.fixture
def learner(policy_dir: Path, tmp_path: Path) -> Learner:
    return Learner(policy_dir, tmp_path, LearnerConfig())


def test_training_steps_through_rollout_update_publish_and_acknowledge(
    policy_dir: Path, learner: Learner, display: Display, tmp_path: Path
) -> None:
    client = FakeClient(FakeLLM(policy_dir))
    steps = example.train(client, learner, CONFIG, display)
    run = client.runs["arithmetic-1000-train"]
    assert [step.step for step in steps] == [1, 2, 3]
    assert all(step.groups_in_batch == 2 for step in steps)
    assert max(step.logprob_gap for step in steps) < 1e-4
    assert sum(step.jobs_accepted for step in steps) == run.counters.jobs_accepted
    assert run.acknowledged == ["batch-1", "batch-2", "batch-3"]
    assert [version for _, version in run.updates] == [1, 2, 3]
    assert run.closed


def test_the_served_policy_ends_up_with_the_trained_weights(
    policy_dir: Path, learner: Learner, display: Display, tmp_path: Path
) -> None:
    llm = FakeLLM(policy_dir)
    example.train(FakeClient(llm), learner, CONFIG, display)
    started = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "version-3", dtype=torch.float32)
    assert not torch.equal(llm.policy.lm_head.weight, started.lm_head.weight)
    assert torch.equal(llm.policy.lm_head.weight, saved.lm_head.weight)


def test_only_the_last_two_checkpoints_are_kept(
    policy_dir: Path, learner: Learner, display: Display, tmp_path: Path
) -> None:
    example.train(FakeClient(FakeLLM(policy_dir)), learner, CONFIG, display)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["version-2", "version-3"]


def test_training_raises_the_probability_of_calling_the_tool(
    policy_dir: Path, learner: Learner, display: Display
) -> None:
    question = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
    llm = FakeLLM(policy_dir)
    tokens = llm.tokenizer.encode(question, add_special_tokens=False)
    call = llm.tokenizer.convert_tokens_to_ids("<tool_call>")
    before = llm.logprobs([*tokens, call])[-1]
    example.train(FakeClient(llm), learner, CONFIG, display)
    assert llm.logprobs([*tokens, call])[-1] > before


def test_an_llm_server_that_keeps_old_weights_stops_the_run(
    policy_dir: Path, learner: Learner, display: Display
) -> None:
    client = FakeClient(KeepsOldHead(policy_dir))
    with pytest.raises(WeightMismatch, match=r"after the update to version 1.*untied embeddings"):
        example.train(client, learner, CONFIG, display)
    assert client.runs["arithmetic-1000-train"].acknowledged == []


def test_rollouts_from_other_weights_stop_the_run_before_training(
    policy_dir: Path, learner: Learner, display: Display
) -> None:
    llm = FakeLLM(policy_dir)
    with torch.no_grad():
        llm.policy.lm_head.weight *= 1.01
    client = FakeClient(llm)
    with pytest.raises(WeightMismatch, match="what the LLM servers sampled at version 0"):
        example.train(client, learner, CONFIG, display)
    assert client.runs["arithmetic-1000-train"].updates == []


def test_a_gap_that_is_not_a_number_is_a_mismatch() -> None:
    with pytest.raises(WeightMismatch):
        example.check_gap(float("nan"), "nowhere")
    example.check_gap(1e-3, "nowhere")


def test_the_pass_rate_is_the_mean_reward_on_the_held_out_problems(
    policy_dir: Path, display: Display
) -> None:
    client = FakeClient(FakeLLM(policy_dir))
    pass_rate = example.evaluate(client, "before", CONFIG, display)
    counters = client.runs["arithmetic-1000-before"].counters
    assert counters.jobs_accepted == 200
    assert pass_rate == pytest.approx(counters.rewards_sum / 200)
    assert 0.35 <= pass_rate <= 0.65


def arguments(policy_dir: Path, tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(
        **{
            "url": "http://127.0.0.1:1",
            "policy": policy_dir,
            "output": tmp_path / "report",
            "work_dir": tmp_path / "checkpoints",
            "tensorboard": None,
            "started_at": 1000.0,
            "max_steps": 1,
            "seed": 0,
            "requested_batch_size": 2,
        }
    )


def test_a_run_that_did_not_learn_reports_and_exits_1(
    policy_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(rollyard, "Client", lambda url: FakeClient(FakeLLM(policy_dir)))
    shown = io.StringIO()
    console = Console(file=shown)
    assert example.run_example(arguments(policy_dir, tmp_path), console) == 1
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["ok"], line["steps"], line["groups_kept"]) == (False, 1, 2)
    assert json.loads((tmp_path / "report" / "report.json").read_text())["steps"] == 1
    assert "not learned: the mean reward did not reach 0.95" in shown.getvalue()


def test_an_error_ends_in_one_sentence_and_exit_1(
    policy_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def unreachable(url: str) -> None:
        raise OrchestratorUnavailable("no answer from orchestrator", fix="is it running?")

    monkeypatch.setattr(rollyard, "Client", unreachable)
    monkeypatch.setattr(example, "parse_arguments", lambda: arguments(policy_dir, tmp_path))
    assert example.main() == 1
    captured = capsys.readouterr()
    assert captured.err.strip() == ("training stopped: no answer from orchestrator; is it running?")
    assert captured.out == ""


def test_a_policy_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RollyardError, match="there is no policy at"):
        Learner(tmp_path / "nowhere", tmp_path, LearnerConfig())


def test_a_policy_with_tied_embeddings_is_refused(tmp_path: Path) -> None:
    Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=16,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=8,
            tie_word_embeddings=True,
            pad_token_id=0,
        )
    ).save_pretrained(tmp_path)
    with pytest.raises(RollyardError, match="tied embeddings"):
        Learner(tmp_path, tmp_path / "work", LearnerConfig())
