"""Bugs in repositories: the agent works in the repository at its base commit, and is graded by
tests that it has not seen.

The repository is in the row's image, or comes from the operator's; either way without its history,
which has the fix. What the agent leaves is taken from its sandbox as a patch, also if a limit ended
the episode.
"""

from functools import partial

from agent_server.environments.protocol import (
    EnvironmentFailed,
    Needs,
    Observation,
    Opening,
    Response,
)
from agent_server.environments.swe.archive_checkout import ArchiveCheckout
from agent_server.environments.swe.checkout import CheckOut
from agent_server.environments.swe.grading import TEST_SECONDS, grade, nothing
from agent_server.environments.swe.image_checkout import INTERPRETERS, ImageCheckout
from agent_server.environments.swe.row import IMAGE_FIELDS, SweRow, read_row
from agent_server.repositories import Repositories
from agent_server.sandbox.protocol import FileRefused, Sandbox, SandboxNeeds
from agent_server.tools.bash import Bash
from agent_server.tools.editor import Editor
from agent_server.tools.submit import Submit
from agent_server.tools.toolbox import Toolbox
from rollyard.messages import ChatMessage, Grade, Prompt

_INSTRUCTIONS = """\
The repository {repository} is in {directory}. Solve the following issue by changing its source:

{problem}

Tests that you do not see will check your work; changes to tests do not count. There is no network.
Submit when you are done."""

_MORE_SECONDS = 240.0
"""Time for what grading does before and after the tests, each part of which has a deadline."""
_NO_CALL = "Call a tool to go on, or submit if you are done."

SANDBOX = SandboxNeeds(
    programs=("bash", "git", "patch", "tar", "python3"),
    tools=("editor", "pytest"),
    path=INTERPRETERS,
)


class Swe:
    needs = Needs(
        sandbox=SANDBOX,
        image_fields=IMAGE_FIELDS,
        repositories=True,
        eval_seconds=TEST_SECONDS + _MORE_SECONDS,
    )

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self.patch: str | None = None
        """What the policy changed; None before that was looked for."""

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._row = row = read_row(prompt.instance)
        self._check_out = self._source(row)
        self._sandbox = sandbox
        self._checkout = self._check_out(sandbox)
        self._checkout.commit()
        self._toolbox = Toolbox([Bash(), Editor(), Submit()])
        question = _question(row, self._checkout.directory)
        return Opening(messages=(question,), tools=self._toolbox.schemas)

    def step(self, response: Response) -> Observation:
        answers = self._toolbox.answer(response, self._sandbox)
        if answers.submitted is not None:
            return Observation(done=True)
        return Observation(
            messages=answers.messages or (ChatMessage(role="user", content=_NO_CALL),)
        )

    def solve(self) -> None:
        if not self._row.gold_patch:
            raise EnvironmentFailed("the row has no patch that solves it")
        if reason := self._checkout.apply(self._row.gold_patch.encode()):
            raise EnvironmentFailed(f"the row's patch does not apply: {reason}")

    def grade(self) -> Grade:
        try:
            patch = self._checkout.changes()
        except FileRefused as error:
            return nothing(f"no patch can be taken: {error}")
        self.patch = patch.decode(errors="replace")
        return grade(self._row, self._check_out, patch, self._sandbox)

    def _source(self, row: SweRow) -> CheckOut:
        """The way to the row's repository. Raises `EnvironmentFailed` if there is none."""
        if row.image:
            return ImageCheckout
        archive = self._repositories.archive(row.repository, row.base_commit)
        return partial(ArchiveCheckout, directory=row.directory, archive=archive)


def _question(row: SweRow, directory: str) -> ChatMessage:
    text = _INSTRUCTIONS.format(
        repository=row.repository, directory=directory, problem=row.problem_statement
    )
    return ChatMessage(role="user", content=text)
