"""The environment of mathematics: rows of public datasets, boxed answers, grades from Rewards."""

import json
from typing import Any

import pytest

from agent_server.environments.in_thread import InThread
from agent_server.environments.math import INSTRUCTION, Math
from agent_server.environments.math_with_tools import MathWithTools
from agent_server.environments.protocol import EnvironmentFailed, Response
from agent_server.rewards.protocol import ScoreTask
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import ChatMessage, Grade, Prompt, ToolCall
from tests.agent_server.fakes import SandboxOfNothing, said

PLAIN = {"data_source": "math", "problem": "What is 6 times 7?", "answer": "42"}
PUBLIC = {
    "data_source": "deepscaler",
    "prompt": [
        {"role": "system", "content": "Think step by step."},
        {"role": "user", "content": "What is 6 times 7?"},
    ],
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"split": "train", "index": 7},
}
STRINGS = PUBLIC | {name: json.dumps(PUBLIC[name]) for name in ("prompt", "reward_model")}


class GradesHere:
    """`Rewards` without a process of their own."""

    def score(self, task: ScoreTask) -> Grade:
        # It brings SymPy, which would be a second of each process that collects these tests.
        from agent_server.rewards.math import grade

        assert task.data_source == "math"
        return grade(task)


def begun(row: dict[str, Any]) -> tuple[InThread, tuple[ChatMessage, ...]]:
    episode = InThread(Math, GradesHere())
    opening = episode.start(Prompt(prompt_id="row", instance=row), SandboxOfNothing())
    return episode, opening.messages


def test_a_problem_is_asked_with_how_to_answer_it() -> None:
    _, asked = begun(PLAIN)
    question = f"What is 6 times 7?\n\n{INSTRUCTION}"
    assert asked == (ChatMessage(role="user", content=question),)


@pytest.mark.parametrize("row", [PUBLIC, STRINGS], ids=["objects", "JSON strings"])
def test_a_public_prompt_is_asked_as_it_is(row: dict[str, Any]) -> None:
    _, asked = begun(row)
    assert [message.role for message in asked] == ["system", "user"]
    assert asked[1].content == "What is 6 times 7?"


def test_reasoning_is_no_answer_while_it_is_not_over() -> None:
    episode, _ = begun(PLAIN)
    text = r"It may be \boxed{42}, or"  # behind a prompt that opens the reasoning
    episode.step(Response(text=text, reasoning=text))
    assert episode.grade().reason == "the response has no boxed answer"


@pytest.mark.parametrize("row", [PLAIN, PUBLIC, STRINGS], ids=["plain", "objects", "JSON strings"])
@pytest.mark.parametrize(("answer", "reward"), [("42.0", 1.0), ("41", 0.0)])
def test_one_response_is_the_answer(row: dict[str, Any], answer: str, reward: float) -> None:
    episode, _ = begun(row)
    assert episode.step(said(rf"It is \boxed{{{answer}}}.")).done
    assert episode.grade().reward == reward


@pytest.mark.parametrize("gold", ["42", r"\boxed{42}", "$42$", ["42", "41"]])
def test_gold_scores_one_and_untouched_scores_zero(gold: Any) -> None:
    episode, _ = begun(PLAIN | {"answer": gold})
    assert episode.grade().reward == 0.0
    episode.solve()
    assert episode.grade().reward == 1.0


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "?"},
        {"problem": "?", "answer": ""},
        {"answer": "42"},
        {"prompt": [], "answer": "42"},
        {"prompt": [{"role": "user"}], "answer": "42"},
        {"prompt": "?", "reward_model": {"style": "rule"}},
    ],
)
def test_a_row_without_a_field_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentFailed, match=r"a row has"):
        begun({"data_source": "math"} | row)


def called(name: str, **arguments: str) -> Response:
    return Response(text=name, calls=(ToolCall(call_id="1", name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("answer", "reward"), [("42", 1.0), (r"So \boxed{42}.", 1.0), ("41", 0.0), ("", 0.0)]
)
def test_an_agent_computes_and_finishes_with_its_answer(
    answer: str, reward: float, sandbox: Sandbox
) -> None:
    episode = InThread(MathWithTools, GradesHere())
    opening = episode.start(Prompt(prompt_id="row", instance=PLAIN), sandbox)
    assert [tool.name for tool in opening.tools] == ["python", "finish"]
    (told,) = episode.step(called("python", code="print(6 * 7)")).messages
    assert told.content == "42"
    (told,) = episode.step(called("finish")).messages
    assert told.content.startswith("error: ")
    assert episode.step(called("finish", answer=answer)).done
    assert episode.grade().reward == reward


def test_a_box_without_a_call_is_an_agents_answer_too(sandbox: Sandbox) -> None:
    episode = InThread(MathWithTools, GradesHere())
    episode.start(Prompt(prompt_id="row", instance=PLAIN), sandbox)
    assert episode.step(said(r"\boxed{42}")).done
    assert episode.grade().reward == 1.0
