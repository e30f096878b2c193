"""A real model with its own tokenizer and chat template: SmolLM2-135M-Instruct does mathematics on
the real vLLM in bfloat16, and every token and logprob is checked by torch."""

import json
import subprocess
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from statistics import mean

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import in_thread
from agent_server.environments.math import Math
from agent_server.jobs.runner import RunnerSettings
from agent_server.llm import LLMClient, LLMSettings
from agent_server.rewards.local import LocalRewards, LocalRewardSettings
from launch.free_ports import free_port
from rollyard.messages import Limits, Outcome, Result, Sampling, Trajectory
from tests.agent_server.fakes import EchoEnvironment, SandboxesOfNothing, assign, make_job
from tests.agent_server.running import Running
from tests.llm_fixtures import (
    ROOT,
    VLLM_PYTHON,
    VLLM_START_SECONDS,
    await_healthy,
    label,
    start_module,
)

pytestmark = pytest.mark.timeout(900)  # the first test makes the model, and starts vLLM

MODEL = ROOT / ".models" / "smollm2-135m-instruct"
SUMS = [(a, b) for a in (1, 2, 5) for b in (2, 3, 4, 6)]
WAYS = [Sampling(temperature=t, max_response_tokens=64) for t in (0.7, 1.0)]

MAX_OVER_TORCH = 1.5
"""Bound on the mean gap, in those of torch's own forward pass in bfloat16."""

_FORWARD_PASS = """
import json, sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
exact, noisy = (
    AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=dtype).eval()
    for dtype in (torch.float32, torch.bfloat16)
)

def logprobs(model, tokens, mask, temperature):
    with torch.no_grad():
        logits = model(tokens[None]).logits[0, :-1][mask[1:]].float() / temperature
    return logits.log_softmax(-1).gather(-1, tokens[mask][:, None])[:, 0]

for line in sys.stdin:
    case = json.loads(line)
    tokens, mask = torch.tensor(case["token_ids"]), torch.tensor(case["loss_mask"]).bool()
    own = logprobs(exact, tokens, mask, case["temperature"])
    torchs = logprobs(noisy, tokens, mask, case["temperature"])
    told = torch.tensor(case["logprobs"])[mask]
    print(json.dumps([(own - told).abs().tolist(), (own - torchs).abs().tolist()]))
"""


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    if not MODEL.exists():
        MODEL.parent.mkdir(exist_ok=True)
        make = [str(VLLM_PYTHON), str(ROOT / "examples" / "smollm2" / "make_model.py"), str(MODEL)]
        subprocess.run(make, check=True, timeout=600)
    return ChatTemplate.load(MODEL)


@pytest.fixture(scope="module")
def llm(template: ChatTemplate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLMClient]:
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("vllm") / "vllm.log"
    options = ("--dtype", "bfloat16", "--max-model-len", "1024", "--port", str(port))
    started = start_module(
        ["llm_servers.vllm_server", "--python", str(VLLM_PYTHON), "--model", str(MODEL), *options],
        log,
    )
    try:
        await_healthy(started, url, VLLM_START_SECONDS)
        label(url, 0)
        client = LLMClient(LLMSettings(servers=(url,)))
        yield client
        client.close()
    finally:
        started.stop()


@pytest.fixture(scope="module")
def results(template: ChatTemplate, llm: LLMClient) -> Iterator[list[tuple[Sampling, Result]]]:
    """Results of all sums, each with how it was sampled."""
    rewards = LocalRewards(
        [EntryPoint("math", "agent_server.rewards.math:grade", "rollyard.graders")],
        LocalRewardSettings(),
    )
    settings = RunnerSettings(slots=len(SUMS))
    hosted = {"math": in_thread(Math, rewards)}
    running = Running(template, llm, EchoEnvironment, settings, SandboxesOfNothing(), hosted)
    yield [(way, result) for way in WAYS for result in run(running, way)]
    running.runner.close(5)
    rewards.close()


def run(running: Running, way: Sampling) -> list[Result]:
    limits = Limits(max_turns=1, max_tokens=400, job_seconds=240)
    for a, b in SUMS:
        row = {"data_source": "math", "problem": f"What is {a} + {b}?", "answer": str(a + b)}
        name = f"{a}+{b} at {way.temperature}"
        job = make_job(job_id=name, instance=row, limits=limits, sampling=way)
        running.runner.accept(assign(job))
    results = [running.results.get(timeout=240) for _ in SUMS]
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETED, "")}
    return results


def trajectory(result: Result) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


def test_every_trajectory_tokenises_to_itself(
    results: list[tuple[Sampling, Result]], template: ChatTemplate
) -> None:
    for _, result in results:
        told = trajectory(result)
        tokens = list(told.token_ids)
        assert tokens[: told.prompt_length] == template.prompt(told.messages[:1])
        assert told.messages[1].content == template.text(tokens[told.prompt_length :])
        if not told.truncated:
            assert tokens[-1] in template.stop_token_ids


def test_every_response_is_graded(results: list[tuple[Sampling, Result]]) -> None:
    for _, result in results:
        assert result.grade is not None
        assert result.grade.reason
        assert result.grade.reward in (0.0, 1.0)


def test_every_logprob_is_torchs_within_the_noise_of_bfloat16(
    results: list[tuple[Sampling, Result]],
) -> None:
    cases = [
        {
            "temperature": way.temperature,
            "token_ids": list(trajectory(result).token_ids),
            "loss_mask": list(trajectory(result).loss_mask),
            "logprobs": list(trajectory(result).logprobs),
        }
        for way, result in results
    ]
    command = [str(VLLM_PYTHON), "-c", _FORWARD_PASS, str(MODEL)]
    given = "\n".join(map(json.dumps, cases))
    ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    for way in WAYS:
        told, torchs = [], []
        for case, line in zip(cases, ended.stdout.splitlines(), strict=True):
            if case["temperature"] == way.temperature:
                of_vllm, of_torch = json.loads(line)
                told += of_vllm
                torchs += of_torch
        print(
            f"temperature {way.temperature}, {len(told)} tokens, gap to float32 (mean, max): "
            f"vLLM {mean(told):.4f}, {max(told):.3f}; torch {mean(torchs):.4f}, {max(torchs):.3f}"
        )
        assert mean(told) <= MAX_OVER_TORCH * mean(torchs)
