"""Rows of SWE-bench, SWE-Gym and R2E-Gym, under the field names of the public datasets."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from agent_server.sandbox.protocol import WORKSPACE
from rollyard.codec import decode_json, learnt
from rollyard.errors import InvalidMessage

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"\w[\w.~^-]*")
_R2E_TESTS = "r2e_tests"

IMAGE_FIELDS = ("docker_image", "image_name")
"""Fields in which datasets name the image that a row was made for; the first given one counts."""

T = TypeVar("T")


class SweRow(msgspec.Struct, frozen=True, kw_only=True):
    """One bug, its fix, and the tests that tell them apart."""

    instance_id: str
    repository: str
    """OWNER/NAME."""
    base_commit: str
    problem_statement: str
    gold_patch: str = ""
    test_patch: str = ""
    test_files: dict[str, str] = msgspec.field(default_factory=dict)
    """Text of test files by their path, where the row brings whole files in place of a patch."""
    fail_to_pass: tuple[str, ...] = ()
    """Tests that fail before the fix and pass after it."""
    pass_to_pass: tuple[str, ...] = ()
    """Tests that pass before and after."""
    image: str = ""
    """Container image that the row was made for; empty where the dataset names none."""

    @property
    def directory(self) -> str:
        """The repository's place in a sandbox without an image."""
        return f"{WORKSPACE}/{self.repository.partition('/')[2]}"

    @property
    def tests(self) -> tuple[str, ...]:
        return (*self.fail_to_pass, *self.pass_to_pass)


def read_row(instance: Mapping[str, Any]) -> SweRow:
    """Raises `InvalidMessage`."""
    row = _r2e_row(instance) if "expected_output_json" in instance else _swe_bench_row(instance)
    if not _REPOSITORY.fullmatch(row.repository) or ".." in row.repository:
        raise _invalid("repo", "as OWNER/NAME", row.repository)
    if not _COMMIT.fullmatch(row.base_commit):
        raise _invalid("base_commit", "as a commit", row.base_commit)
    if not row.tests:
        raise InvalidMessage(
            f"the row {row.instance_id!r} names no test", fix="leave the row out of the dataset"
        )
    if not row.test_files and not any("::" in test for test in row.tests):
        raise InvalidMessage(
            f"the row {row.instance_id!r} has the test {row.tests[0]!r}, no node id of pytest",
            fix="leave the row out of the dataset: pytest alone is run",
        )
    return row


def _swe_bench_row(instance: Mapping[str, Any]) -> SweRow:
    return SweRow(
        instance_id=_text(instance, "instance_id"),
        repository=_text(instance, "repo"),
        base_commit=_text(instance, "base_commit"),
        problem_statement=_text(instance, "problem_statement"),
        gold_patch=_text(instance, "patch", ""),
        test_patch=_text(instance, "test_patch", ""),
        fail_to_pass=_decoded(instance, "FAIL_TO_PASS", tuple[str, ...]),
        pass_to_pass=_decoded(instance, "PASS_TO_PASS", tuple[str, ...]),
        image=_image(instance),
    )


class _Execution(msgspec.Struct):
    """What an R2E-Gym row says of the tests that it was made with."""

    test_file_names: list[str]
    test_file_codes: list[str]


def _r2e_row(instance: Mapping[str, Any]) -> SweRow:
    """R2E-Gym names the commit of the fix, and gives the status of each test after it."""
    name, commit = _text(instance, "repo_name"), _text(instance, "commit_hash")
    execution = _decoded(instance, "execution_result_content", _Execution)
    expected = _decoded(instance, "expected_output_json", dict[str, str])
    for path in execution.test_file_names:
        if path.startswith("/") or ".." in path.split("/"):
            raise _invalid("test_file_names", "below the repository", path)
    files = zip(execution.test_file_names, execution.test_file_codes, strict=False)
    return SweRow(
        instance_id=_text(instance, "instance_id", f"{name}__{commit}"),
        repository=_text(instance, "repo", f"{name}/{name}"),
        base_commit=f"{commit}~1",
        problem_statement=_text(instance, "problem_statement"),
        gold_patch=_text(instance, "patch", ""),
        test_files={f"{_R2E_TESTS}/{path}": text for path, text in files},
        pass_to_pass=tuple(test for test, status in expected.items() if status == "PASSED"),
        image=_image(instance),
    )


def _image(instance: Mapping[str, Any]) -> str:
    return next(filter(None, (_text(instance, field, "") for field in IMAGE_FIELDS)), "")


def _text(instance: Mapping[str, Any], field: str, default: str | None = None) -> str:
    value = instance.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise _invalid(field, "as text", value)
    return value


def _decoded(instance: Mapping[str, Any], field: str, kind: type[T]) -> T:
    """The value of a field that is JSON in some datasets, and decoded in others."""
    value = instance.get(field)
    try:
        if isinstance(value, str):
            return decode_json(value.encode(), kind)
        return msgspec.convert(value, learnt(kind))
    except (msgspec.ValidationError, InvalidMessage) as error:
        raise _invalid(field, f"({error})", value) from error


def _invalid(field: str, form: str, value: object) -> InvalidMessage:
    shown = repr(value)[:200]
    return InvalidMessage(
        f"a swe row needs {field!r} {form}, got {shown}",
        fix="docs/swe.md lists the fields of a row",
    )
