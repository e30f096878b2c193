"""Rows of the public datasets through the door, from a script's responses to their scores."""

import json
from pathlib import Path
from typing import Any

from tests.agent_server.environments.swe.projects import ROW, make_repositories
from tests.agent_server.environments.swe.test_environment import LOOKS, REPAIRS, SUBMITS
from tests.agent_server.environments.swe.test_environment import call as tool_call
from tests.agent_server.prorl.client import SAMPLING, ProrlClient
from tests.agent_server.prorl.door_process import DoorProcess
from tests.llm_fixtures import StartScriptedLLM

SWE = {name: value for name, value in ROW.items() if name != "data_source"}
SPOILS = tool_call("bash", command="rm adding/tests/test_adding.py")


def row(source: str, question: str, truth: object, index: int) -> dict[str, Any]:
    return {
        "data_source": source,
        "prompt": json.dumps([{"role": "user", "content": question}]),
        "reward_model": json.dumps({"style": "rule", "ground_truth": json.dumps(truth)}),
        "extra_info": {"split": "train", "index": index, "name": "own"},
        "trajectory_id": 0,
    }


def program(text: str) -> str:
    return f"So:\n```python\n{text}\n```"


MATH = row("deepscaler", "What is 6 times 7?", 42, 1)
CODE = row("deepcoder", "Double it.", {"inputs": ["4\n"], "outputs": ["8\n"]}, 2)
CASES: list[tuple[dict[str, Any], str, str, float]] = [
    (MATH, "deepscaler_own_train_1", r"It is \boxed{42}.", 1.0),
    (MATH, "deepscaler_own_train_1", r"It is \boxed{41}.", 0.0),
    (CODE, "deepcoder_own_train_2", program("print(2 * int(input()))"), 1.0),
    (CODE, "deepcoder_own_train_2", program("print(int(input()))"), 0.0),
]
"""A row, the id that it gets, what is said to it, and the score."""
SAYS = {**SAMPLING, "max_iterations": 8, "max_output_tokens": 1000, "max_model_len": 8000}


def start(door: DoorProcess, llm: StartScriptedLLM, replies: Path, *scripts: Any) -> ProrlClient:
    """A client of the door of a new agent server, whose policy says these scripts."""
    replies.write_text("".join(json.dumps(script) + "\n" for script in scripts))
    url = llm("--replies", str(replies), "--max-model-len", "16384")
    repositories = replies.parent / "repositories"
    make_repositories(repositories)
    options = ("--tool-calls", "hermes", "--repositories", str(repositories))
    return door.start(url, slots=16, options=options)


def test_rows_of_public_datasets_are_scored_by_their_environments(
    door: DoorProcess, start_scripted_llm: StartScriptedLLM, tmp_path: Path
) -> None:
    scripts = [
        {"asks": f"{number}: ", "scripts": [[said]]} for number, (_, _, said, _) in enumerate(CASES)
    ]
    scripts.append({"asks": "add(2, 3) is -1.", "scripts": [[*LOOKS, REPAIRS, SUBMITS]]})
    scripts.append({"asks": "Break it.", "scripts": [[SPOILS, SUBMITS]]})
    client = start(door, start_scripted_llm, tmp_path / "replies", *scripts)
    graded = [
        client.begin(numbered(asked, number), sampling_params=SAYS)
        for number, (asked, *_) in enumerate(CASES)
    ]
    repaired = [
        client.begin({**SWE, **named}, sampling_params=SAYS)
        for named in ({"data_source": "swebench"}, {})
    ]
    spoilt = client.process({**SWE, "problem_statement": "Break it."}, sampling_params=SAYS).json()
    assert (spoilt["score"], spoilt["success"]) == (0.0, True)
    assert "deleted file mode" in spoilt["git_patch"]
    for call, (_, name, _, score) in zip(graded, CASES, strict=True):
        result = call.result().json()
        assert (result["instance_id"], result["score"], result["resolved"]) == (name, score, score)
        assert (result["critical_error"], result["git_patch"]) == (None, None)
    for call in repaired:
        check_repaired(call.result().json())


def numbered(asked: dict[str, Any], number: int) -> dict[str, Any]:
    (question,) = json.loads(asked["prompt"])
    question["content"] = f"{number}: {question['content']}"
    return {**asked, "prompt": json.dumps([question])}


def check_repaired(result: dict[str, Any]) -> None:
    assert (result["instance_id"], result["score"]) == ("me__adding-1", 1.0), result
    assert "+    return a + b" in result["git_patch"]
    tools = ["bash", "str_replace_editor", "submit"]
    assert [tool["function"]["name"] for tool in result["tools"]] == tools
    called = [each["function"]["name"] for m in result["messages"] for each in m["tool_calls"]]
    assert called == ["bash", "str_replace_editor", "str_replace_editor", "submit"]
    assert any("return a - b" in each["content"] for each in result["messages"])
