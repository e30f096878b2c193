"""Rows of `swe` from consecutive source releases of a library: the bug is in one, its fix and the
tests that show it are in the next.

    find LIBRARY VERSION VERSION...   prints a recipe for each two versions that follow each other
    rows RECIPES DIRECTORY            makes DIRECTORY/rows.jsonl, and the repositories beside it

A recipe has names, hashes and the ids of tests, and no line of the library: releases come from pip.
They must be built by setuptools, and need nothing but Python to be tested.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from agent_server.environments.swe.archive_checkout import ArchiveCheckout
from agent_server.environments.swe.environment import SANDBOX
from agent_server.environments.swe.grading import TEST_SECONDS, why_left_out
from agent_server.environments.swe.patch import joined, read_patch
from agent_server.environments.swe.pytest_run import run_tests
from agent_server.environments.swe.session import Session
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import WORKSPACE
from agent_server.sandbox.settings import SandboxSettings

PYTHON = Path(__file__).parents[2] / ".venv-tools" / "pytest" / "bin" / "python"
REGISTRY = "pypi"


class Recipe(msgspec.Struct, frozen=True):
    """How to make one row from two releases."""

    library: str
    before: str
    after: str
    sha256: dict[str, str]
    """Hash of each release's file, by version."""
    problem_statement: str
    fail_to_pass: list[str]
    pass_to_pass: list[str]


class Difference(msgspec.Struct, frozen=True):
    """What one release changed of the one before."""

    patch: bytes
    test_patch: bytes
    test_files: list[str]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    find = commands.add_parser("find")
    find.add_argument("library")
    find.add_argument("versions", nargs="+")
    rows = commands.add_parser("rows")
    rows.add_argument("recipes", type=Path)
    rows.add_argument("directory", type=Path)
    flags = parser.parse_args(arguments)
    if flags.command == "rows":
        make_rows(flags.recipes, flags.directory)
        return
    with tempfile.TemporaryDirectory() as directory:
        for recipe in find_recipes(flags.library, flags.versions, Path(directory)):
            print(msgspec.json.encode(recipe).decode(), flush=True)


def make_rows(recipes: Path, directory: Path) -> None:
    """Write the rows of the recipes, and put the releases where `--repositories` finds them."""
    decoder = msgspec.json.Decoder(Recipe)
    read = [decoder.decode(line) for line in recipes.read_bytes().splitlines()]
    hashes = {
        (each.library, version): known for each in read for version, known in each.sha256.items()
    }
    download(hashes, directory / "repositories")
    with (directory / "rows.jsonl").open("wb") as file:
        for each in read:
            file.write(msgspec.json.encode(row(each, directory / "repositories")) + b"\n")


def row(recipe: Recipe, repositories: Path) -> dict[str, object]:
    """A row with the fields of SWE-bench."""
    versions = (recipe.before, recipe.after)
    changed = difference(*(place(repositories, recipe.library, each) for each in versions))
    return {
        "data_source": "swe",
        "instance_id": f"{REGISTRY}__{recipe.library}-{recipe.after}",
        "repo": f"{REGISTRY}/{recipe.library}",
        "base_commit": recipe.before,
        "version": recipe.before,
        "problem_statement": recipe.problem_statement,
        "patch": changed.patch.decode(),
        "test_patch": changed.test_patch.decode(),
        "FAIL_TO_PASS": recipe.fail_to_pass,
        "PASS_TO_PASS": recipe.pass_to_pass,
    }


def download(hashes: Mapping[tuple[str, str], str], repositories: Path) -> None:
    """Download the releases, by library and version, each with its hash if it is known. One call of
    pip takes one version of each library."""
    waiting = {
        each: known for each, known in hashes.items() if not place(repositories, *each).exists()
    }
    while waiting:
        together = dict(waiting.keys())  # the last version of each library
        pip_download({each: waiting.pop(each) for each in together.items()}, repositories)


def pip_download(hashes: Mapping[tuple[str, str], str], repositories: Path) -> None:
    # Built by the setuptools that is there: pip would fetch another for each release.
    options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    with tempfile.TemporaryDirectory() as directory:
        requirements = Path(directory, "requirements.txt")
        for (library, version), known in hashes.items():
            with requirements.open("a") as file:
                file.write(f"{library}=={version}{known and f' --hash=sha256:{known}'}\n")
        command = [str(PYTHON), "-m", "pip", "download", *options, "--dest", directory]
        subprocess.run([*command, "--requirement", str(requirements)], check=True)
        for library, version in hashes:
            (found,) = Path(directory).glob(f"{library.replace('-', '?')}-{version}.tar.gz")
            place(repositories, library, version).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(found, place(repositories, library, version))


def place(repositories: Path, library: str, version: str) -> Path:
    """The file of a release, where the environment looks for it."""
    return repositories / f"{REGISTRY}__{library}" / f"{version}.tar.gz"


def difference(before: Path, after: Path) -> Difference:
    """What one release changed of the one before; changes that are neither tests nor code of the
    library are left out."""
    with tempfile.TemporaryDirectory() as directory:
        trees = [unpacked(release, Path(directory, release.stem)) for release in (before, after)]
        git = partial(run_git, Path(directory, "git"))
        git(trees[0], "init", "--quiet")
        for tree in trees:
            git(tree, "add", "--all", "--force")
            if tree is trees[0]:
                git(tree, "commit", "--quiet", "--message", before.name)
        patch = git(trees[1], "diff", "--cached", "--no-renames", "HEAD")
        files = [str(file.relative_to(trees[1])) for file in trees[1].rglob("*.py")]
    changes = [each for each in read_patch(patch) if not each.refused]
    code = [each for each in changes if each.path.endswith(".py") and not why_left_out(each)]
    return Difference(
        patch=joined(code),
        test_patch=joined(each for each in changes if why_left_out(each)),
        test_files=sorted(file for file in files if Path(file).name.startswith("test_")),
    )


def unpacked(release: Path, directory: Path) -> Path:
    with tarfile.open(release) as archive:
        archive.extractall(directory, filter="data")
    (top,) = directory.iterdir()
    return top


def run_git(git_directory: Path, tree: Path, *arguments: str) -> bytes:
    options = ["-c", "user.name=rollyard", "-c", "user.email=rollyard@localhost"]
    options += ["-c", "core.quotePath=false", "-c", "core.autocrlf=false"]
    options += [f"--git-dir={git_directory}", f"--work-tree={tree}"]
    command = ["git", *options, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def find_recipes(library: str, versions: Sequence[str], directory: Path) -> Iterator[Recipe]:
    """A recipe for each two releases of which the later repairs what its tests show."""
    download({(library, version): "" for version in versions}, directory)
    with closing(Bubblewrap(SandboxSettings())) as sandboxes:
        for before, after in pairwise(versions):
            releases = {each: place(directory, library, each) for each in (before, after)}
            fixed, kept = compare(sandboxes, releases[before], difference(*releases.values()))
            if fixed:
                yield Recipe(
                    library=library,
                    before=before,
                    after=after,
                    sha256={each: sha256(file) for each, file in releases.items()},
                    problem_statement=f"{library} {before} fails the tests of {after}.",
                    fail_to_pass=fixed,
                    pass_to_pass=kept,
                )


def compare(
    sandboxes: Bubblewrap, release: Path, changed: Difference
) -> tuple[list[str], list[str]]:
    """The tests that the change repairs, and the others in their files that pass before and
    after."""
    broken = tried(sandboxes, release, [changed.test_patch], changed.test_files)
    whole = tried(sandboxes, release, [changed.test_patch, changed.patch], changed.test_files)
    passing = [test for test in whole.outcomes if whole.passed(test)]
    fixed = [test for test in passing if not broken.passed(test)]
    files = {test.partition("::")[0] for test in fixed}
    beside = [test for test in passing if test.partition("::")[0] in files]
    return fixed, [test for test in beside if broken.passed(test)]


def tried(
    sandboxes: Bubblewrap, release: Path, patches: Sequence[bytes], files: Sequence[str]
) -> Session:
    """The tests in these files of the release, once it has the patches."""
    with sandboxes.open(SANDBOX) as sandbox:
        checkout = ArchiveCheckout(sandbox, f"{WORKSPACE}/library", release.read_bytes())
        for patch in filter(None, patches):
            if reason := checkout.apply(patch):
                raise SystemExit(f"a patch does not apply: {reason}")
        return run_tests(sandbox, checkout, files, TEST_SECONDS)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
