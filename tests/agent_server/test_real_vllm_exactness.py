"""What a trainer is handed by the real vLLM, checked from outside: each logprob by an own forward
pass, each reward by an own grader, of a model whose responses end in three ways."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.arithmetic import Arithmetic
from agent_server.jobs.runner import RunnerSettings
from agent_server.llm import LLMClient, LLMSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from llm_servers.server import LLMServer
from rollyard.messages import Limits, Outcome, Result, Sampling, Trajectory
from tests.agent_server.fakes import assign, make_job
from tests.agent_server.running import Running
from tests.llm_fixtures import MANY_ENDS, POLICY, VLLM_PYTHON, publish

pytestmark = pytest.mark.timeout(600)  # the first test waits for vLLM to start

JOBS = 12
"""For each way to sample."""
WAYS = [
    Sampling(temperature=t, top_p=p, max_response_tokens=40)
    for t in (0.7, 1.0, 1.3)
    for p in (0.9, 1.0)
]
MAX_GAP = 1e-4

_OWN_FORWARD_PASS = """
import json, sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()

def nucleus(logits, top_p, slack):
    ascending, order = logits.sort(-1)
    out = ascending.softmax(-1).cumsum(-1) <= 1 - top_p + slack
    out[:, -1] = False
    return logits.masked_fill(out.scatter(-1, order, out), -torch.inf)

for line in sys.stdin:
    case = json.loads(line)
    tokens, mask = torch.tensor(case["token_ids"]), torch.tensor(case["loss_mask"]).bool()
    with torch.no_grad():
        logits = model(tokens[None]).logits[0, :-1][mask[1:]].double() / case["temperature"]
    told = torch.tensor(case["logprobs"]).double()[mask][:, None]
    gaps = []
    for slack in (-1e-6, 1e-6):  # where the nucleus ends within rounding, either end will do
        left = nucleus(logits, case["top_p"], slack) if case["top_p"] < 1 else logits
        own = left.log_softmax(-1).gather(-1, tokens[mask][:, None])
        gaps.append((own - told).abs())
    print(torch.minimum(*gaps).max().item())
"""


@pytest.fixture(scope="module")
def results(
    vllm_llm: str, many_ends: ChatTemplate, sandboxes: Bubblewrap, many_ends_weights: Path
) -> Iterator[dict[Sampling, list[Result]]]:
    """Of whole Jobs, by how they were sampled."""
    server = LLMServer(vllm_llm)
    version = server.version() or 0
    publish(server, many_ends_weights, version)
    llm = LLMClient(LLMSettings(servers=(vllm_llm,)))
    running = Running(many_ends, llm, Arithmetic, RunnerSettings(slots=JOBS), sandboxes)
    yield {way: run(running, way) for way in WAYS}
    running.runner.close(5)
    llm.close()
    publish(server, POLICY, version)
    server.close()


def run(running: Running, way: Sampling) -> list[Result]:
    limits = Limits(max_turns=4, max_tokens=400, job_seconds=120)
    for number in range(JOBS):
        name = f"job-{way.temperature}-{way.top_p}-{number}"
        running.runner.accept(assign(make_job(job_id=name, limits=limits, sampling=way)))
    results = [running.results.get(timeout=120) for _ in range(JOBS)]
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETED, "")}
    return results


def trajectory(result: Result) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


def test_every_logprob_is_of_the_distribution_that_was_sampled_from(
    results: dict[Sampling, list[Result]], many_ends_weights: Path
) -> None:
    cases = [
        {
            "temperature": way.temperature,
            "top_p": way.top_p,
            "token_ids": list(trajectory(result).token_ids),
            "loss_mask": list(trajectory(result).loss_mask),
            "logprobs": list(trajectory(result).logprobs),
        }
        for way, made in results.items()
        for result in made
    ]
    command = [str(VLLM_PYTHON), "-c", _OWN_FORWARD_PASS, str(many_ends_weights)]
    told = "\n".join(map(json.dumps, cases))
    ended = subprocess.run(command, input=told, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    gaps = [float(line) for line in ended.stdout.split()]
    assert len(gaps) == len(WAYS) * JOBS
    worst = [max(gaps[start : start + JOBS]) for start in range(0, len(gaps), JOBS)]
    sampled = sum(sum(trajectory(result).loss_mask) for made in results.values() for result in made)
    print(f"worst gaps over {sampled} tokens: {dict(zip(WAYS, worst, strict=True))}")
    assert max(gaps) <= MAX_GAP


def own_grade(trajectory: Trajectory, template: ChatTemplate) -> float:
    """From the tokens alone: the last response, if the policy ended it and called no tool."""
    last = trajectory.turns[-1]
    *said, end = trajectory.token_ids[last.start : last.end]
    if last.finish_reason != "stop":
        return 0.0
    assert end in MANY_ENDS
    return float(said == template.encode("1776"))


def test_every_reward_is_that_of_an_own_grader_whatever_ended_the_response(
    results: dict[Sampling, list[Result]], many_ends: ChatTemplate
) -> None:
    ends: set[tuple[int, float | None]] = set()
    for result in (result for made in results.values() for result in made):
        assert result.reward == own_grade(trajectory(result), many_ends)
        ends.add((trajectory(result).token_ids[-1], result.reward))
    assert {(end, 1.0) for end in MANY_ENDS} <= ends


def test_every_observation_stands_behind_the_templates_own_end_token(
    results: dict[Sampling, list[Result]], many_ends: ChatTemplate
) -> None:
    seen = set()
    for each in (trajectory(result) for made in results.values() for result in made):
        sampled = {p for turn in each.turns for p in range(turn.start, turn.end)}
        assert {p for p, bit in enumerate(each.loss_mask) if bit} == sampled
        for turn, following in zip(each.turns, each.turns[1:], strict=False):
            end = each.token_ids[turn.end - 1]
            observed = list(each.token_ids[turn.end : following.start])
            tool = next(m for m in each.messages if m.role == "tool")
            if len(each.turns) == 2:  # one observation: the only message of a tool
                assert observed == many_ends.observation([tool], after=end)
            assert observed[0] == many_ends.end_token_id or end == many_ends.end_token_id
            seen.add(end)
    assert seen == set(MANY_ENDS)
