"""The environments of programming: rows of public datasets, programs graded by their tests."""

import json
from functools import partial
from threading import Semaphore
from typing import Any

import pytest

from agent_server.environments.code import Code
from agent_server.environments.code_with_tools import SOLUTION, CodeWithTools
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed, Observation, Opening, Response
from agent_server.rewards import code
from agent_server.sandbox.protocol import Sandbox, SandboxUnavailable
from rollyard.messages import Prompt, ToolCall
from tests.agent_server.fakes import said

LINES = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
CALLS = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, [7]]}
ADDS_LINES = "print(sum(map(int, input().split())))"
ADDS_CALLS = (
    "class Solution:\n    def add(self, a: int, b: int) -> List[int]:\n        return a + b"
)
PUBLIC = {
    "data_source": "taco",
    "prompt": json.dumps([{"role": "user", "content": "Add two numbers."}]),
    "reward_model": {"style": "rule", "ground_truth": json.dumps(LINES)},
    "extra_info": {"time_limit": 2.0, "index": 3},
    "solutions": json.dumps([f"```python\n{ADDS_LINES}\n```"]),
}
PLAIN = {"problem": "Add.", "answer": CALLS, "solution": ADDS_CALLS}
KINDS = pytest.mark.parametrize("kind", [Code, CodeWithTools])


def begin(
    row: dict[str, Any], sandbox: Sandbox, kind: type[Code] = Code
) -> tuple[InThread, Opening]:
    episode = InThread(kind)
    return episode, episode.start(
        Prompt(prompt_id="row", instance={"data_source": "code"} | row), sandbox
    )


def calls(name: str, **arguments: str) -> Response:
    call = ToolCall(call_id="1", name=name, arguments=arguments)
    return Response(text=name, calls=(call,))


def fenced(program: str) -> Response:
    return said(f"Here it is:\n```python\n{program}\n```\n")


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        (PUBLIC, ADDS_LINES, "print(3)"),
        (PLAIN, ADDS_CALLS, "def add(a, b):\n    return 3"),
    ],
    ids=["lines", "calls"],
)
def test_a_program_in_a_fence_is_graded_by_its_tests(
    row: dict[str, Any], right: str, wrong: str, sandbox: Sandbox
) -> None:
    episode, _ = begin(row, sandbox)
    assert episode.step(fenced(right)).done
    grade = episode.grade()
    assert (grade.reward, grade.components) == (1.0, {"passed": 1.0})
    assert episode.step(fenced(wrong)).done
    grade = episode.grade()
    assert (grade.reward, grade.components) == (0.0, {"passed": 0.5})
    assert grade.reason == "test 2 of 2: the program gave another result"


def test_a_row_may_allow_more_than_a_sandbox_gives(sandbox: Sandbox) -> None:
    episode, _ = begin(PUBLIC | {"extra_info": {"memory_limit": 1e6, "time_limit": 1e4}}, sandbox)
    episode.step(fenced(ADDS_LINES))
    assert episode.grade().reward == 1.0


def test_what_a_function_prints_is_no_part_of_its_result(sandbox: Sandbox) -> None:
    episode, _ = begin(PLAIN, sandbox)
    episode.step(fenced("def add(a, b):\n    print('adding', flush=True)\n    return a + b"))
    assert episode.grade().reward == 1.0


def test_a_program_that_fails_after_a_right_result_is_wrong(sandbox: Sandbox) -> None:
    episode, _ = begin(PUBLIC, sandbox)
    episode.step(fenced(f"{ADDS_LINES}\nraise SystemExit(3)"))
    assert episode.grade().reason == "test 1 of 2: the program ended with exit code 3"


@KINDS
@pytest.mark.parametrize("row", [PUBLIC, PLAIN], ids=["lines", "calls"])
def test_gold_scores_one_and_untouched_scores_zero(
    row: dict[str, Any], kind: type[Code], sandbox: Sandbox
) -> None:
    episode, _ = begin(row, sandbox, kind)
    assert episode.grade().reward == 0.0
    episode.solve()
    assert episode.grade().reward == 1.0


def test_a_public_prompt_is_asked_as_it_is_and_a_problem_with_how_to_answer(
    sandbox: Sandbox,
) -> None:
    _, opening = begin(PUBLIC, sandbox)
    assert [message.content for message in opening.messages] == ["Add two numbers."]
    _, opening = begin(PLAIN, sandbox, CodeWithTools)
    assert SOLUTION in opening.messages[0].content
    assert {tool.name for tool in opening.tools} == {"bash", "python", "submit"}


def test_a_file_that_the_tools_wrote_is_graded_after_submit(sandbox: Sandbox) -> None:
    episode, _ = begin(PUBLIC, sandbox, CodeWithTools)
    told = episode.step(calls("bash", command=f"echo '{ADDS_LINES}' > solution.py"))
    assert not told.done
    told = episode.step(calls("bash", command="echo 20 3 | python3 solution.py"))
    assert told.messages[0].content.strip() == "23"
    assert episode.step(calls("submit")).done
    assert episode.grade().reward == 1.0


def test_a_last_response_without_a_call_ends_the_episode(sandbox: Sandbox) -> None:
    episode, _ = begin(PUBLIC, sandbox, CodeWithTools)
    episode.step(calls("bash", command=f"echo '{ADDS_LINES}' > solution.py"))
    assert episode.step(said("I am done.")) == Observation(done=True)
    assert episode.grade().reward == 1.0
    assert episode.step(fenced("print(3)")).done
    assert episode.grade().reward == 0.0


@KINDS
def test_a_row_without_usable_tests_is_the_rows_fault(kind: type[Code], sandbox: Sandbox) -> None:
    with pytest.raises(EnvironmentFailed, match="tests of a programming row"):
        begin({"problem": "Add.", "answer": "3"}, sandbox, kind)


def test_a_row_without_a_solution_says_that_it_cannot_be_proven(sandbox: Sandbox) -> None:
    episode, _ = begin({"problem": "Add.", "answer": LINES}, sandbox)
    with pytest.raises(EnvironmentFailed, match="no solution"):
        episode.solve()


def test_a_program_of_any_length_is_graded(sandbox: Sandbox) -> None:
    episode, _ = begin(PUBLIC, sandbox)
    episode.step(fenced(ADDS_LINES + "\n#" + "x" * code.MAX_PROGRAM_BYTES))
    assert episode.grade().reason == f"the program has more than {code.MAX_PROGRAM_BYTES} bytes"
    episode.step(fenced("print('\ud800')"))
    assert episode.grade().reward == 0.0


def test_a_machine_that_cannot_try_a_program_in_time_has_failed(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_TURN_SECONDS", 0.01)
    monkeypatch.setattr(code, "_turns", Semaphore(0))
    episode, _ = begin(PUBLIC, sandbox)
    episode.step(fenced(ADDS_LINES))
    with pytest.raises(SandboxUnavailable, match="the machine tries others"):
        episode.grade()


def test_tests_that_take_too_long_together_are_not_all_run(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = partial(code.grade_program, seconds=0.0)
    monkeypatch.setattr("agent_server.environments.code.grade_program", hurried)
    episode, _ = begin(PUBLIC, sandbox)
    episode.step(fenced(ADDS_LINES))
    assert episode.grade().reason == "test 1 of 2: the program ran out of time or memory"
