"""Policies that tamper with their reward, each by a trick of its own: all score 0, and whoever
solves the task scores 1 beside them.
"""

from typing import Any

import pytest

from agent_server.environments.code import Code
from agent_server.environments.code_with_tools import CodeWithTools
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Response
from agent_server.rewards import bounded, math, programs
from agent_server.rewards.protocol import ScoreTask
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import Prompt, ToolCall
from tests.agent_server.fakes import said
from tests.agent_server.rewards.tricks import ANSWERS, FUNCTIONS, PROGRAMS, SHELLS

CALLS = {"fn_name": "add", "inputs": [[1775, 1], [20, 3]], "outputs": [1776, 23]}
LINES = {"inputs": ["1775 1\n", "20 3\n"], "outputs": ["1776\n", "23\n"]}
LIMITS = {"time_limit": 1, "memory_limit": 256}
HONEST_CALL = "def add(a, b):\n    return a + b\n"
HONEST_LINES = "print(sum(map(int, input().split())))\n"


def prompt(tests: dict[str, Any]) -> Prompt:
    row = {"problem": "Add.", "answer": tests, "extra_info": LIMITS}
    return Prompt(prompt_id="row", instance={"data_source": "code"} | row)


def reward_of_program(program: str, tests: dict[str, Any], sandbox: Sandbox) -> float:
    episode = InThread(Code)
    episode.start(prompt(tests), sandbox)
    episode.step(said(f"```python\n{program}\n```"))
    return episode.grade().reward


def reward_of_shell(command: str, sandbox: Sandbox) -> float:
    episode = InThread(CodeWithTools)
    episode.start(prompt(LINES), sandbox)
    for name, arguments in (("bash", {"command": command}), ("submit", {})):
        call = ToolCall(call_id=name, name=name, arguments=arguments)
        episode.step(Response(text="", calls=(call,)))
    return episode.grade().reward


def reward_of_answer(answer: str) -> float:
    task = ScoreTask(data_source="math", solution_str=answer, ground_truth="42")
    return math.grade(task).reward


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_that_tampers_scores_nothing(
    program: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_WALL_OVER_CPU", 1.0)
    assert reward_of_program(program, LINES, sandbox) == 0.0


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_that_tampers_scores_nothing(function: str, sandbox: Sandbox) -> None:
    assert reward_of_program(function, CALLS, sandbox) == 0.0


@pytest.mark.parametrize(("program", "tests"), [(HONEST_CALL, CALLS), (HONEST_LINES, LINES)])
def test_an_honest_program_scores_one(
    program: str, tests: dict[str, Any], sandbox: Sandbox
) -> None:
    assert reward_of_program(program, tests, sandbox) == 1.0


@pytest.mark.parametrize("command", SHELLS.values(), ids=SHELLS)
def test_an_agent_that_tampers_scores_nothing(command: str, sandbox: Sandbox) -> None:
    assert reward_of_shell(command, sandbox) == 0.0


def test_an_agent_whose_file_is_right_scores_one_whatever_else_it_left(sandbox: Sandbox) -> None:
    kept = (SHELLS[name] for name in ("start-up files", "variables", "results beforehand"))
    honest = f"cat > solution.py <<'EOF'\n{HONEST_LINES}EOF"
    assert reward_of_shell("\n".join([*kept, honest]), sandbox) == 1.0


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_tampers_scores_nothing(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "CPU_SECONDS", 1)
    assert reward_of_answer(answer) == 0.0


def test_an_honest_answer_scores_one() -> None:
    assert reward_of_answer(r"So it is \boxed{42}.") == 1.0
