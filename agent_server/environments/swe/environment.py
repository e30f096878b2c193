"""Bugs in repositories: the agent works in the repository at its base commit, and is graded by
tests that it has not seen.

The repository comes without its history, which has the fix. What the agent leaves is taken from its
sandbox as a patch, also if a limit ended the episode.
"""

from agent_server.environments.protocol import (
    EnvironmentFailed,
    Needs,
    Observation,
    Opening,
    Response,
)
from agent_server.environments.swe.checkout import Checkout
from agent_server.environments.swe.grading import TEST_SECONDS, grade, nothing
from agent_server.environments.swe.row import SweRow, read_row
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
    programs=("bash", "git", "patch", "tar", "python3"), tools=("editor", "pytest")
)


class Swe:
    needs = Needs(sandbox=SANDBOX, repositories=True, eval_seconds=TEST_SECONDS + _MORE_SECONDS)

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._row = row = read_row(prompt.instance)
        if row.image:
            # Tests that need its packages would fail here whatever the policy does.
            raise EnvironmentFailed(
                f"the row was made for the image {row.image!r}, in which swe cannot work yet",
                fix="leave the row out, or, where its tests need no more than the standard "
                "library, its docker_image and image_name",
            )
        self._archive = self._repositories.archive(row.repository, row.base_commit)
        self._sandbox = sandbox
        self._checkout = Checkout(sandbox, row.directory, self._archive)
        self._checkout.commit()
        self._toolbox = Toolbox([Bash(), Editor(), Submit()])
        return Opening(messages=(_question(row),), tools=self._toolbox.schemas)

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
        return grade(self._row, self._archive, patch, self._sandbox)


def _question(row: SweRow) -> ChatMessage:
    text = _INSTRUCTIONS.format(
        repository=row.repository, directory=row.directory, problem=row.problem_statement
    )
    return ChatMessage(role="user", content=text)
