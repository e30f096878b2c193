"""Every environment, end to end: queues, an agent server, real sandboxes, scripted policies.

A policy that solves its row gets 1 and one that does not gets 0, and every trajectory is what its
own text spells.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from launch.free_ports import free_port
from rollyard.client import Client
from rollyard.messages import Batch, Criterion, Result
from tests.agent_server.environments.swe.projects import ROW, make_repositories
from tests.faults.conftest import MakeDeployment, make_deployment
from tests.llm_fixtures import POLICY, StartScriptedLLM, start_module

__all__ = ["make_deployment"]

MEMBERS = 6
TEMPLATE = """{% if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one as <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

Script = tuple[str, ...]


def call(name: str, **arguments: Any) -> str:
    called = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{called}</tool_call>"


CASES: dict[str, tuple[dict[str, Any], Script, Script]] = {
    "arithmetic": (
        {"question": "37*48", "answer": "1776"},
        ("<tool_call>37*48</tool_call>", "1776"),
        ("1777",),
    ),
    "math": (
        {"problem": "What is half of three?", "answer": r"\frac{3}{2}"},
        (r"It is \boxed{1.5}.",),
        (r"It is \boxed{2}.",),
    ),
    "code": (
        {"problem": "Add two numbers.", "answer": {"inputs": ["1 2"], "outputs": ["3"]}},
        ("```python\nprint(sum(map(int, input().split())))\n```",),
        ("```python\nprint(4)\n```",),
    ),
    "code_with_tools": (
        {
            "problem": "Double a number.",
            "answer": {"fn_name": "double", "inputs": [[4]], "outputs": [8]},
        },
        (
            call("bash", command="echo 'def double(x): return 2 * x' > solution.py"),
            call("python", code="from solution import double; print(double(4))"),
            call("submit"),
        ),
        (call("bash", command="echo 'print(8)' > solution.py"), call("submit")),
    ),
    "swe": (
        ROW,
        (
            call("bash", command="grep -n a adding/adding.py"),
            call(
                "str_replace_editor",
                command="str_replace",
                path="/workspace/adding/adding.py",
                old_str="a - b",
                new_str="a + b",
            ),
            call("submit"),
        ),
        (call("bash", command="rm adding/tests/test_adding.py"), call("submit")),
    ),
    "gym": (
        {"question": "Cross the lake.", "kwargs": {"is_slippery": False}, "seed": 1},
        ("down", "down", "right", "right", "down", "right"),
        ("down", "right"),
    ),
}
"""A row of each environment, a script that solves it, and one that does not."""


def asked(row: dict[str, Any]) -> str:
    """The text of the row that stands in its conversation."""
    return str(row.get("question") or row.get("problem") or row["problem_statement"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's tokenizer, with a chat template that tells of tools."""
    directory = tmp_path_factory.mktemp("model") / "policy"
    shutil.copytree(POLICY, directory)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


@pytest.fixture
def batch(
    tmp_path: Path,
    model: Path,
    make_deployment: MakeDeployment,
    start_scripted_llm: StartScriptedLLM,
) -> Iterator[Batch]:
    """A Batch with a Group of each environment."""
    replies = tmp_path / "replies.jsonl"
    lines = ({"asks": asked(row), "scripts": scripts} for row, *scripts in CASES.values())
    replies.write_text("".join(json.dumps(line) + "\n" for line in lines))
    llm = start_scripted_llm("--replies", str(replies), "--max-model-len", "16384", model=model)
    repositories = tmp_path / "repositories"
    make_repositories(repositories)
    # Longer than those of faults: this server beats every two seconds, as in production.
    deployment = make_deployment(agent_servers=0, lease_seconds=30.0)
    deployment.start_services()
    url = deployment.cluster.door_url
    agent = start_module(
        [
            *("agent_server", "--port", str(free_port()), "--server-id", "agent"),
            *("--orchestrator", url, "--llm-server", llm, "--model", str(model), "--slots", "4"),
            *("--repositories", str(repositories)),
        ],
        tmp_path / "agent.log",
    )
    rows = [{**row, "data_source": name} for name, (row, *_) in CASES.items()]
    try:
        with Client(url) as client:
            run = client.run(rows, run_id="all", group_size=MEMBERS, criterion=Criterion.COMPLETE)
            yield run.rollout(len(rows))
            run.finish()
    finally:
        agent.kill()


def test_what_solves_a_row_is_rewarded_and_nothing_else(batch: Batch, model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    solved = dict.fromkeys(CASES, 0)
    for group in batch.groups:
        name = group.prompt.data_source
        _, right, wrong = CASES[name]
        assert len(group.results) == MEMBERS
        for result in group.results:
            said = _said(result)
            assert said in (right, wrong), f"{name}: {said}"
            assert result.reward == float(said == right), f"{name}: {result.grade}"
            solved[name] += said == right
            _assert_exact(result, tokenizer)
    assert set(solved) == {group.prompt.data_source for group in batch.groups}
    assert sum(solved.values()) not in (0, MEMBERS * len(CASES)), "scripts are drawn by chance"


def _said(result: Result) -> Script:
    assert result.trajectory is not None
    messages = result.trajectory.messages
    return tuple(message.content for message in messages if message.role == "assistant")


def _assert_exact(result: Result, tokenizer: Tokenizer) -> None:
    assert result.trajectory is not None
    for each in result.trajectory.sequences:
        ids = list(each.token_ids)
        text = tokenizer.decode(ids, skip_special_tokens=False)
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids
        sampled = sum(turn.end - turn.start for turn in each.turns)
        assert sum(each.loss_mask) == sampled
