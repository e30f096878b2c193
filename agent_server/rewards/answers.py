"""Answers within what a policy wrote: the last boxed expression, and the last fenced program.

Only the text behind the policy's reasoning counts, so that a candidate that it considered and
discarded there is not its answer.
"""

import re

_REASONING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
_BOX = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_FENCE = re.compile(r"^```(\w*)[^\S\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = ("", "py", "python", "python3")


def last_boxed(text: str) -> str | None:
    r"""Contents of the last `\boxed{...}`; None without one, or if its braces do not balance."""
    answer = after_reasoning(text)
    boxes = list(_BOX.finditer(answer))
    if not boxes:
        return None
    start, depth = boxes[-1].end(), 1
    for brace in _BRACE.finditer(answer, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return answer[start : brace.start()].strip()
    return None


def last_program(text: str) -> str | None:
    """Contents of the last code fence that is marked as Python or not at all; None without one."""
    programs = [
        body
        for language, body in _FENCE.findall(after_reasoning(text))
        if language.lower() in _PYTHON
    ]
    return programs[-1] if programs else None


def after_reasoning(text: str) -> str:
    """The text behind the reasoning, of which there is none while the reasoning is not over."""
    for opening, closing in _REASONING:
        _, closed, behind = text.rpartition(closing)
        if closed:
            return behind
        if text.lstrip().startswith(opening):
            return ""
    return text
