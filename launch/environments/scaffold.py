"""The files of a new environment: an installable package with a test and rows."""

import keyword
import re
import sys
from pathlib import Path

from rollyard.errors import Conflict, InvalidMessage

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "rollyard-{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["rollyard"]

[project.entry-points."rollyard.environments"]
{name} = "{name}:{title}"

[tool.setuptools]
py-modules = ["{name}"]
"""

_ENVIRONMENT = '''\
"""Sums, each in one response. Change what is asked, what is answered, and what is rewarded."""

from agent_server.environments.protocol import Observation, Response
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import ChatMessage, Grade, Prompt


class {title}:
    """One object serves one trajectory. An exception is never a reward: it fails the attempt."""

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self.expected = str(prompt.instance["answer"])
        self.answer = ""
        question = f"What is {{prompt.instance['question']}}? Answer with the number alone."
        return (ChatMessage(role="user", content=question),)

    def step(self, response: Response) -> Observation:
        self.answer = response.content.strip()
        return Observation(done=True)  # or messages=(ChatMessage(role="user", content=...),)

    def solve(self) -> None:
        """What a perfect policy would have done: `rollyard env validate` proves rows with it."""
        self.answer = self.expected

    def grade(self) -> Grade:
        right = float(self.answer == self.expected)
        return Grade(reward=right, reason=f"{{self.answer!r}} for {{self.expected!r}}")
'''

_TEST = '''\
"""A right answer is rewarded, and a wrong one is not."""

from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import Response
from rollyard.messages import Prompt

from {name} import {title}

ROW = {{"data_source": "{name}", "question": "2 + 3", "answer": "5"}}


def reward_of(answer: str) -> float:
    environment = {title}()
    environment.start(Prompt(prompt_id="row", instance=ROW), NoSandbox())
    assert environment.step(Response(text=answer, content=answer)).done
    return environment.grade().reward


def test_the_right_answer_is_rewarded() -> None:
    assert reward_of(" 5\\n") == 1.0


def test_a_wrong_answer_is_not() -> None:
    assert reward_of("6") == 0.0
'''

_ROWS = "".join(
    f'{{{{"data_source": "{{name}}", "question": "{a} + {b}", "answer": "{a + b}"}}}}\n'
    for a in range(1, 5)
    for b in range(1, 5)
)


def scaffold(name: str, parent: Path) -> tuple[Path, ...]:
    """Write the package `parent/name`, and return its files. Raises `InvalidMessage` for a name
    that no module may have, and `Conflict` if the directory exists."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise InvalidMessage(
            f"{name!r} cannot name an environment and its module",
            fix="use lower-case letters, digits and _, starting with a letter, and no name of "
            "Python's own",
        )
    directory = parent / name
    if directory.exists():
        raise Conflict(f"{directory} exists already", fix="choose another name, or remove it")
    title = "".join(word.capitalize() for word in name.split("_"))
    texts = {
        "pyproject.toml": _PYPROJECT,
        f"{name}.py": _ENVIRONMENT,
        f"test_{name}.py": _TEST,
        "rows.jsonl": _ROWS,
    }
    directory.mkdir(parents=True)
    for file, text in texts.items():
        (directory / file).write_text(text.format(name=name, title=title))
    return tuple(directory / file for file in texts)
