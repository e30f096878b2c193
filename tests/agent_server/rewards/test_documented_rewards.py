"""The tests of programs and the fresh sandbox of docs/rewards.md work as they are written."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent_server.rewards.program_tests import program_tests
from agent_server.sandbox.protocol import Sandbox

PAGE = (Path(__file__).parents[3] / "docs" / "rewards.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def block(language: str, word: str) -> str:
    (found,) = (each for each in blocks(language) if word in each)
    return found


def test_the_forms_of_tests_are_read() -> None:
    forms = block("json", "fn_name").splitlines()
    assert [len(program_tests(form, {}).tests) for form in forms] == [2, 2, 1]


@pytest.mark.parametrize(("program", "reward"), [("print(1 + 2)", 1.0), ("print(4)", 0.0)])
def test_a_file_crosses_into_a_fresh_sandbox(program: str, reward: float, sandbox: Sandbox) -> None:
    sandbox.write("/workspace/solution.py", program.encode())
    names: dict[str, Any] = {"sandbox": sandbox}
    exec(block("python", "sandbox.fresh()"), names)
    assert names["reward"] == reward
