"""An agent that works on a bug, from its opening to its grade, in real sandboxes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.agents.tool_loop import ToolLoop
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed
from agent_server.environments.swe.environment import SANDBOX, Swe
from agent_server.repositories import NO_REPOSITORIES, Repositories
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import OpenSandbox
from rollyard.messages import Grade, Limits, Sampling, Trajectory
from tests.agent_server.environments.swe.projects import (
    CODE,
    FIXED,
    ROW,
    begun,
    left,
    make_git_repository,
    make_repositories,
)
from tests.agent_server.fakes import Says, make_job, said
from tests.llm_fixtures import POLICY

ADDING = "/workspace/adding/adding.py"


def call(tool: str, **arguments: Any) -> str:
    said = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


def edit(command: str, **arguments: Any) -> str:
    return call("str_replace_editor", command=command, path=ADDING, **arguments)


LOOKS = [call("bash", command="cd adding && ls"), edit("view")]
REPAIRS = edit("str_replace", old_str="a - b", new_str="a + b")
SUBMITS = call("submit")


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    return make_repositories(tmp_path_factory.mktemp("repositories"))


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[OpenSandbox]:
    with sandboxes.open(SANDBOX) as opened:
        yield opened


def work(
    repositories: Repositories, sandbox: OpenSandbox, *responses: str, turns: int = 8
) -> tuple[Trajectory, Grade]:
    """The trajectory and the grade of a policy that says this."""
    template = ChatTemplate.load(POLICY, tool_calls="hermes")
    limits = Limits(max_turns=turns, max_tokens=4000, job_seconds=60)
    job = make_job(instance=ROW, limits=limits, sampling=Sampling(max_response_tokens=400))
    episode = InThread(Swe, repositories=repositories)
    opening = episode.start(job.prompt, sandbox)
    task = Task(
        name="t",
        job=job,
        opening=opening,
        prompt=template.prompt(opening.messages, opening.tools),
        environment=episode,
        policy=Says(template, *responses),
        template=template,
    )
    trajectory = ToolLoop(task).run(StopSignal())
    assert list(trajectory.token_ids[: len(task.prompt)]) == list(task.prompt)
    return trajectory, episode.grade()


def test_a_policy_that_repairs_the_bug_is_rewarded(
    repositories: Repositories, sandbox: OpenSandbox
) -> None:
    trajectory, grade = work(repositories, sandbox, *LOOKS, REPAIRS, SUBMITS)
    assert grade.reward == 1.0, grade.reason
    assert grade.components == {"fail_to_pass": 1.0, "pass_to_pass": 1.0}
    assert grade.metrics == {"files_changed": 1.0, "tests_run": 2.0}
    assert [each.name for each in trajectory.messages if each.role == "tool"] == [
        "bash",
        "str_replace_editor",
        "str_replace_editor",
    ]
    assert not trajectory.truncated


def test_a_policy_that_breaks_something_else_is_not(
    repositories: Repositories, sandbox: OpenSandbox
) -> None:
    breaks = call("bash", command=f"sed -i 's/a [*] b/a + b/' {ADDING}")
    _, grade = work(repositories, sandbox, REPAIRS, breaks, SUBMITS)
    assert grade.reward == 0.0
    assert grade.components == {"fail_to_pass": 1.0, "pass_to_pass": 0.0}
    assert grade.reason == "1 of 2: not passed: tests/test_adding.py::test_multiply (failed)"


def test_a_policy_that_does_nothing_is_not(
    repositories: Repositories, sandbox: OpenSandbox
) -> None:
    _, grade = work(repositories, sandbox, *LOOKS, SUBMITS)
    assert (grade.reward, grade.reason) == (0.0, "the agent changed nothing")


def test_a_policy_that_calls_no_tool_is_asked_to(
    repositories: Repositories, sandbox: OpenSandbox
) -> None:
    episode, _ = begun(ROW, repositories, sandbox)
    observation = episode.step(said("The bug is in add."))
    assert [message.role for message in observation.messages] == ["user"]
    assert not observation.done


def test_work_counts_that_was_cut_off_by_a_limit(
    repositories: Repositories, sandbox: OpenSandbox
) -> None:
    trajectory, grade = work(repositories, sandbox, REPAIRS, turns=1)
    assert trajectory.truncated
    assert grade.reward == 1.0, grade.reason


def test_work_counts_that_was_interrupted(repositories: Repositories, sandbox: OpenSandbox) -> None:
    episode, _ = begun(ROW, repositories, sandbox)
    sandbox.write(ADDING, FIXED.encode())
    sandbox.interrupt()
    sandbox.readmit()
    assert episode.grade().reward == 1.0


def test_work_that_was_committed_counts(repositories: Repositories, sandbox: OpenSandbox) -> None:
    command = "git commit --quiet --all --message repaired && git status --porcelain"
    assert left(repositories, sandbox, {"adding.py": FIXED}, command).reward == 1.0


CRLF = {"adding.py": CODE.replace("\n", "\r\n")}


@pytest.mark.parametrize(
    "files",
    [
        {**CRLF, ".gitattributes": "* text=auto\n"},
        {".gitattributes": "*.py text eol=crlf\n"},
        {".gitattributes": "*.py -diff\n"},
    ],
    ids=["text=auto", "eol=crlf", "-diff"],
)
def test_attributes_of_the_repository_change_no_work(
    tmp_path: Path, sandbox: OpenSandbox, files: dict[str, str]
) -> None:
    repaired = files.get("adding.py", CODE).replace("a - b", "a + b")
    grade = left(make_repositories(tmp_path, files), sandbox, {"adding.py": repaired})
    assert grade.reward == 1.0, grade.reason


@pytest.mark.parametrize(
    "command",
    ["git init --quiet within", "echo >'a\"b'", "echo '*.py binary' >.gitattributes"],
    ids=["a repository", "an odd name", "attributes"],
)
def test_work_counts_beside_what_cannot(
    repositories: Repositories, sandbox: OpenSandbox, command: str
) -> None:
    grade = left(repositories, sandbox, {"adding.py": FIXED}, command)
    assert grade.reward == 1.0, grade.reason


def test_what_tests_leave_behind_is_no_part_of_the_work(
    repositories: Repositories, sandbox: OpenSandbox
) -> None:
    command = "python3 -m compileall -q . && mkdir .pytest_cache && echo > .pytest_cache/x"
    grade = left(repositories, sandbox, {"adding.py": FIXED}, command)
    assert (grade.reward, grade.metrics["files_changed"]) == (1.0, 1.0)


def test_the_rows_solution_solves_it(repositories: Repositories, sandbox: OpenSandbox) -> None:
    episode, _ = begun(ROW, repositories, sandbox)
    episode.solve()
    assert episode.grade().reward == 1.0


def test_a_repository_of_git_is_worked_on_as_well(tmp_path: Path, sandbox: OpenSandbox) -> None:
    repositories = make_git_repository(tmp_path)
    episode, _ = begun(ROW | {"base_commit": "HEAD"}, repositories, sandbox)
    episode.solve()
    assert episode.grade().reward == 1.0


def test_a_row_of_r2e_gym_brings_its_tests(tmp_path: Path, sandbox: OpenSandbox) -> None:
    code = "from adding import add\nclass TestIt:\n    def test_add(self): assert add(2, 3) == 5\n"
    row = {
        "instance_id": "adding",
        "data_source": "swe",
        "repo_name": "adding",
        "repo": "me/adding",
        "commit_hash": "HEAD",
        "problem_statement": "add(2, 3) is -1.",
        "patch": ROW["patch"],
        "execution_result_content": json.dumps(
            {"test_file_names": ["test_1.py"], "test_file_codes": [code]}
        ),
        "expected_output_json": json.dumps({"TestIt.test_add": "PASSED"}),
    }
    episode, _ = begun(row, make_git_repository(tmp_path), sandbox)
    sandbox.write("/workspace/adding/unused.py", b"pass\n")
    assert episode.grade().reward == 0.0
    episode.solve()
    assert episode.grade().reward == 1.0


@pytest.mark.parametrize(
    "row",
    [
        ROW | {"base_commit": "2.0"},
        ROW | {"patch": ""},
        ROW | {"patch": "no patch"},
        ROW | {"test_patch": "no patch"},
    ],
)
def test_a_row_that_cannot_be_used_is_never_a_reward(
    repositories: Repositories, sandbox: OpenSandbox, row: dict[str, Any]
) -> None:
    with pytest.raises(EnvironmentFailed):
        solved(row, repositories, sandbox)


def test_a_server_without_repositories_fails_the_row(sandbox: OpenSandbox) -> None:
    with pytest.raises(EnvironmentFailed, match="--repositories DIR"):
        begun(ROW, NO_REPOSITORIES, sandbox)


def solved(row: dict[str, Any], repositories: Repositories, sandbox: OpenSandbox) -> Grade:
    episode, _ = begun(row, repositories, sandbox)
    episode.solve()
    return episode.grade()
