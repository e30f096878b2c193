"""Repositories that an operator gives to environments."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed, Needs, Observation, Response
from agent_server.repositories import NO_REPOSITORIES, Repositories
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import ChatMessage, Prompt
from tests.agent_server.fakes import SandboxOfNothing


def names(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        return {member.name for member in members if member.isfile()}


def git(repository: Path, *arguments: str) -> str:
    who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    done = subprocess.run(
        ["git", *who, "-C", str(repository), *arguments], check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository of two commits."""
    made = tmp_path / "me__project"
    made.mkdir()
    git(made, "init", "--quiet")
    for name in ("first", "second"):
        (made / name).write_text(name)
        git(made, "add", name)
        git(made, "commit", "--quiet", "--message", name)
    return made


def test_a_release_is_given_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "me__project").mkdir()
    (tmp_path / "me__project" / "1.0.tar.gz").write_bytes(b"the release")
    assert Repositories(tmp_path).archive("me/project", "1.0") == b"the release"


def test_a_git_repository_gives_the_files_of_a_commit(repository: Path) -> None:
    repositories = Repositories(repository.parent)
    assert names(repositories.archive("me/project", "HEAD~1")) == {"repository/first"}
    head = git(repository, "rev-parse", "HEAD")
    assert names(repositories.archive("me/project", head)) == {
        "repository/first",
        "repository/second",
    }


def test_a_bare_repository_is_found_too(repository: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "me__project.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    assert names(Repositories(bare.parent).archive("me/project", "HEAD~1")) == {"repository/first"}


@pytest.mark.parametrize(
    ("name", "commit", "sentence"),
    [
        ("me/project", "0" * 40, "git has no 0000"),
        ("you/project", "HEAD", "there is neither"),
    ],
)
def test_what_is_not_there_is_named(
    repository: Path, name: str, commit: str, sentence: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=sentence):
        Repositories(repository.parent).archive(name, commit)


def test_a_server_without_repositories_says_how_to_give_it_some() -> None:
    with pytest.raises(EnvironmentFailed, match="--repositories DIR"):
        NO_REPOSITORIES.archive("me/project", "HEAD")


class AsksForRepositories:
    needs = Needs(repositories=True)

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        found = self._repositories.archive("me/project", "1.0").decode()
        return (ChatMessage(role="user", content=found),)

    def step(self, response: Response) -> Observation:
        return Observation(done=True)

    def grade(self) -> float:
        return 0.0


def test_an_environment_that_needs_repositories_is_made_with_them(tmp_path: Path) -> None:
    (tmp_path / "me__project").mkdir()
    (tmp_path / "me__project" / "1.0.tar.gz").write_bytes(b"the release")
    episode = InThread(AsksForRepositories, repositories=Repositories(tmp_path))
    prompt = Prompt(prompt_id="row", instance={"data_source": "asks"})
    (message,) = episode.start(prompt, SandboxOfNothing()).messages
    assert message.content == "the release"
