"""Environments whose agent is a program: their task file and the grade of their answer file."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_server.environments.black_box import BlackBox
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed, declared_needs
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from rollyard.errors import RollyardError
from rollyard.messages import Prompt
from tests.agent_server.fakes import said

PAGE = (Path(__file__).parents[3] / "docs" / "doors.md").read_text()
ROW: dict[str, object] = {"country": "{France}", "answer": "Paris"}


class Capitals(BlackBox):
    command = "solve task.md"
    task = "Write the capital of {country} to answer.txt."


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds()) as opened:
        yield opened


def begun(sandbox: Sandbox, row: dict[str, object]) -> InThread:
    episode = InThread(Capitals)
    episode.start(Prompt(prompt_id="p", instance={"data_source": "capitals", **row}), sandbox)
    return episode


def test_it_names_its_agent_and_commands_it(sandbox: Sandbox) -> None:
    assert declared_needs(Capitals).agent == "command"
    prompt = Prompt(prompt_id="p", instance={"data_source": "capitals", **ROW})
    opening = InThread(Capitals).start(prompt, sandbox)
    assert (opening.command, opening.messages) == ("solve task.md", ())


def test_the_task_is_a_file_with_the_fields_of_the_row(sandbox: Sandbox) -> None:
    begun(sandbox, ROW)
    task = sandbox.read("task.md", most_bytes=1000)
    assert task == b"Write the capital of {France} to answer.txt."


@pytest.mark.parametrize(
    ("answer", "reward"), [(b"Paris", 1.0), (b"\n Paris\n", 1.0), (b"paris", 0.0), (b"\xff", 0.0)]
)
def test_the_answer_file_must_hold_the_rows_answer(
    sandbox: Sandbox, answer: bytes, reward: float
) -> None:
    episode = begun(sandbox, ROW)
    sandbox.write("answer.txt", answer)
    assert episode.grade().reward == reward


@pytest.mark.parametrize("left", ["true", "mkdir answer.txt", "ln -s task.md answer.txt"])
def test_no_answer_file_is_no_reward(sandbox: Sandbox, left: str) -> None:
    episode = begun(sandbox, ROW)
    sandbox.run(["/bin/bash", "-c", left], deadline_seconds=10)
    grade = episode.grade()
    assert grade.reward == 0.0
    assert grade.reason.startswith("the agent left no answer: ")


def test_a_row_is_solved_by_its_answer(sandbox: Sandbox) -> None:
    episode = begun(sandbox, ROW)
    episode.solve()
    assert episode.grade().reward == 1.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "Paris"}, "no field 'country'"),
        ({"country": "France"}, "no ground truth"),
        ({"country": "France", "answer": ["Paris"]}, "must be text or a number"),
    ],
)
def test_a_row_that_lacks_something_is_refused(
    sandbox: Sandbox, row: dict[str, object], reason: str
) -> None:
    with pytest.raises(RollyardError, match=reason):
        begun(sandbox, row)


def test_the_environment_of_the_page_is_one(sandbox: Sandbox) -> None:
    names: dict[str, Any] = {}
    (code,) = re.findall(r"```python\n(from [^`]*BlackBox.*?)```", PAGE, re.DOTALL)
    exec(code, names)
    prompt = Prompt(prompt_id="p", instance={"data_source": "capitals", **ROW})
    opening = InThread(names["Capitals"]).start(prompt, sandbox)
    assert opening.command == "python3 agent.py task.md > answer.txt"
    task = sandbox.read("task.md", most_bytes=1000)
    assert task == b"What is the capital of {France}? Print its name."


def test_no_response_takes_the_place_of_the_program(sandbox: Sandbox) -> None:
    with pytest.raises(EnvironmentFailed, match="is a program, which answers by itself"):
        begun(sandbox, ROW).step(said("Paris"))
