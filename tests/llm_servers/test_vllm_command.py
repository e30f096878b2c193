"""How vLLM is started, as text, and what is refused before it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llm_servers.adapter_place import place_of
from llm_servers.vllm_server import Command, VLLMSettings, command
from rollyard.errors import LaunchError
from serving.bind import Bind
from tests.llm_fixtures import POLICY, ROOT


def settings(**changes: object) -> VLLMSettings:
    values = {"python": Path("/venv/python"), "model": Path("/m"), "bind": Bind(port=8101)}
    return VLLMSettings(**(values | changes))  # type: ignore[arg-type]


def run_main(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llm_servers.vllm_server", "--port", "8101", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command_serves_the_model_on_loopback_with_the_routes_we_use() -> None:
    line = " ".join(command(settings(dtype="float32", seed=7)).arguments)
    assert line.startswith("/venv/python -m vllm.entrypoints.openai.api_server --model /m ")
    assert "--host 127.0.0.1 --port 8101" in line
    assert "--dtype float32" in line
    assert "--enable-scale-out" in line
    assert "--seed 7" in line
    assert "--generation-config vllm" in line
    assert "--logprobs-mode processed_logprobs" in line


def test_the_context_is_the_models_unless_it_is_given() -> None:
    assert "--max-model-len auto" in " ".join(command(settings()).arguments)
    assert "--max-model-len 512" in " ".join(command(settings(max_model_len=512)).arguments)
    with pytest.raises(LaunchError, match="max_model_len must be positive, got 0"):
        settings(max_model_len=0)


def test_the_environment_opens_the_control_routes_and_closes_the_network() -> None:
    environment = command(settings(kv_cache_gib=2, threads=3)).environment
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert environment["OMP_NUM_THREADS"] == "3"


def test_the_environment_spares_the_first_request_a_compiler_run() -> None:
    assert command(settings()).environment["TORCH_COMPILE_DISABLE"] == "1"


@pytest.mark.parametrize("block_size", [0, 16, 33, -32])
def test_a_block_size_that_the_cpu_build_refuses_is_refused_here(block_size: int) -> None:
    with pytest.raises(LaunchError, match="multiple of 32"):
        settings(block_size=block_size)


def test_an_address_that_others_can_reach_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"refusing to listen on 0\.0\.0\.0"):
        settings(bind=Bind(host="0.0.0.0", port=8101))


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (None, "does not exist"),
        ({}, "holds no config.json"),
        ({"config.json": "{}"}, "holds no .safetensors file"),
        ({"config.json": "{", "model.safetensors": ""}, "cannot be read"),
    ],
)
def test_a_model_that_cannot_be_served_ends_with_one_sentence(
    tmp_path: Path, files: dict[str, str] | None, problem: str
) -> None:
    model = tmp_path / "model"
    if files is not None:
        model.mkdir()
        for name, content in files.items():
            (model / name).write_text(content)
    ended = run_main("--python", sys.executable, "--model", str(model))
    assert ended.returncode == 2
    (sentence,) = ended.stderr.splitlines()
    assert problem in sentence
    assert str(model) in sentence
    assert ";" in sentence  # and what to do


def test_a_model_with_tied_embeddings_is_served(tmp_path: Path) -> None:
    """Only an update of its weights would go wrong."""
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    (tmp_path / "model.safetensors").touch()
    ended = run_main("--python", "/bin/echo", "--model", str(tmp_path))
    assert ended.returncode == 0
    assert f"--model {tmp_path}" in ended.stdout


def test_options_of_vllm_s_own_are_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ended = run_main(
        *("--python", "/bin/echo", "--model", str(POLICY), "--max-model-len", "512"),
        *("--", "--max-num-seqs=7", "--enable-lora"),
    )
    assert "--max-model-len 512" in ended.stdout
    assert ended.stdout.endswith(" --max-num-seqs=7 --enable-lora\n")


def test_with_adapters_the_policy_is_one_of_them_and_the_model_is_the_base() -> None:
    plain, adapted = command(settings()), command(settings(further=("--enable-lora",)))
    assert named(plain, "--served-model-name") == "policy"
    assert named(adapted, "--served-model-name") == "base"
    policy = json.loads(named(adapted, "--lora-modules"))
    assert policy == {"name": "policy", "path": str(place_of(settings().bind))}
    assert adapted.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in plain.environment


def test_every_module_but_the_output_head_may_have_an_adapter() -> None:
    adapted = command(settings(model=POLICY, further=("--enable-lora",))).arguments
    begin, end = adapted.index("--lora-target-modules"), adapted.index("--lora-modules")
    modules = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(adapted[begin + 1 : end]) == {*modules, "embed_tokens"}
    chosen = ("--enable-lora", "--lora_target_modules=lm_head")
    assert "--lora-target-modules" not in command(settings(model=POLICY, further=chosen)).arguments


def named(started: Command, option: str) -> str:
    return started.arguments[started.arguments.index(option) + 1]


@pytest.mark.parametrize(
    "option",
    ["--host", "--port=1", "--lora-modules", "--served_model_name", "--generation-conf", "--seed"],
)
def test_an_option_that_rollyard_has_to_set_is_refused(option: str) -> None:
    with pytest.raises(LaunchError, match="is not to be given to vLLM: Rollyard sets it"):
        settings(further=(option, "x"))


def test_gpus_share_every_layer_and_nothing_is_said_of_the_cpu() -> None:
    start = command(settings(gpus=("2", "3")))
    line = " ".join(start.arguments)
    assert start.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "--tensor-parallel-size 2" in line
    assert "--enforce-eager" not in line
    assert "--distributed-executor-backend" not in line
    assert not {"VLLM_CPU_KVCACHE_SPACE", "TORCH_COMPILE_DISABLE"} & set(start.environment)


def test_a_missing_interpreter_ends_with_one_sentence() -> None:
    ended = run_main("--python", "/nowhere/python", "--model", str(POLICY))
    assert ended.returncode == 2
    assert ended.stderr.startswith("cannot start vLLM: no Python interpreter at /nowhere/python")


def test_main_becomes_the_process_of_the_interpreter(tmp_path: Path) -> None:
    """A fake interpreter shows what vLLM would be started as."""
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$VLLM_SERVER_DEV_MODE $$ $@"\n')
    fake.chmod(0o755)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "llm_servers.vllm_server", "--port", "8101"),
            *("--python", str(fake), "--model", str(POLICY)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=60)
    assert output.startswith(f"1 {process.pid} -m vllm.entrypoints.openai.api_server --model")
