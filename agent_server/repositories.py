"""The repositories of the rows, in a directory that the operator of the agent server names.

A row names a repository as OWNER/NAME, and a commit. The directory has, for each repository, either
source releases, `OWNER__NAME/COMMIT.tar.gz`, or a git repository, `OWNER__NAME[.git]`. Rows come
from trainers: environments check that what they name does not lead out of the directory.
"""

import subprocess
from pathlib import Path

from agent_server.environments.protocol import EnvironmentFailed
from rollyard.errors import Unavailable

_GIT_SECONDS = 60.0


class Repositories:
    """Owns nothing; reads below `directory`."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    @property
    def exist(self) -> bool:
        """True if the operator named a directory."""
        return self._directory is not None

    def archive(self, repository: str, commit: str) -> bytes:
        """The files of the repository at the commit, a tar.gz with one directory at its top. Raises
        `EnvironmentFailed` for a repository that is not there."""
        if self._directory is None:
            raise EnvironmentFailed(
                "the agent server has no repositories",
                fix="start it with --repositories DIR, or name the image of each row of swe "
                "(docs/swe.md)",
            )
        name = repository.replace("/", "__")
        release = self._directory / name / f"{commit}.tar.gz"
        if release.is_file():
            return release.read_bytes()
        for git_directory in (self._directory / name, self._directory / f"{name}.git"):
            if (git_directory / ".git").exists() or (git_directory / "HEAD").is_file():
                return _archive(git_directory, commit)
        raise EnvironmentFailed(
            f"there is neither {release} nor a git repository {name}[.git] beside it",
            fix=f"put one of them into {self._directory}",
        )


NO_REPOSITORIES = Repositories()


def _archive(git_directory: Path, commit: str) -> bytes:
    options = ["-c", "safe.directory=*", "-C", str(git_directory)]
    try:
        made = subprocess.run(
            ["git", *options, "archive", "--format=tar.gz", "--prefix=repository/", commit],  # noqa: S607
            stdin=subprocess.DEVNULL,
            process_group=0,  # a signal to the server's group is for the server
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git cannot read {git_directory}: {error}") from error
    if made.returncode != 0:
        raise EnvironmentFailed(
            f"git has no {commit} in {git_directory}: {made.stderr.decode(errors='replace')[:300]}",
            fix="fetch the commit into that repository",
        )
    return made.stdout
