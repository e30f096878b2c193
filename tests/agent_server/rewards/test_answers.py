"""The answer within a response is found as public graders find it."""

import pytest

from agent_server.rewards.answers import last_boxed, last_program


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed {42}", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{1 \boxed{2}}", "2"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed", None),
        ("<think>\\boxed{1}</think>2", None),
        ("so \\boxed{1}?</think>\\boxed{2}", "2"),
        (" <think>\\boxed{1}", None),
        ("[THINK]\\boxed{1}[/THINK]\\boxed{2}", "2"),
        ("[THINK]\\boxed{1}[/THINK]2", None),
        ("[THINK]\\boxed{1}", None),
    ],
)
def test_the_answer_is_what_the_last_box_holds(response: str, answer: str | None) -> None:
    assert last_boxed(response) == answer


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("so:\n```\nprint(1)\n```\nthat is all", "print(1)\n"),
        ("```py\nprint(1)\n```\n```python3\nprint(2)\n```", "print(2)\n"),
        ("```python\nprint(1)\n```\n```json\n{}\n```", "print(1)\n"),
        ("```python\nprint(1)", None),
        ("print(1)", None),
        ("<think>\n```python\nprint(1)\n```\n</think>", None),
        ("<think>\n```python\nprint(1)\n```\n", None),
        ("```" + " " * 200_000, None),
        ("```\n" * 50_001, "```\n"[:0]),
    ],
)
def test_the_program_is_what_the_last_python_fence_holds(
    response: str, program: str | None
) -> None:
    assert last_program(response) == program
