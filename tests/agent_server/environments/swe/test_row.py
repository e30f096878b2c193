"""Rows of the public datasets."""

import json
from typing import Any

import pytest

from agent_server.environments.swe.row import read_row
from rollyard.errors import InvalidMessage

SWE_BENCH = {
    "instance_id": "me__project-1",
    "repo": "me/project",
    "base_commit": "0123abc",
    "version": "1.0",
    "problem_statement": "It is broken.",
    "patch": "the fix",
    "test_patch": "the tests",
    "FAIL_TO_PASS": '["a.py::test_a"]',
    "PASS_TO_PASS": ["a.py::test_b"],
}
R2E_GYM = {
    "repo_name": "project",
    "docker_image": "me/project:1",
    "commit_hash": "0123abc",
    "problem_statement": "It is broken.",
    "execution_result_content": json.dumps(
        {"test_file_names": ["test_1.py"], "test_file_codes": ["def test_a(): pass"]}
    ),
    "expected_output_json": '{"TestA.test_a": "PASSED", "TestA.test_b": "FAILED"}',
}


def test_lists_of_tests_are_read_as_json_and_as_lists() -> None:
    row = read_row(SWE_BENCH)
    assert row.tests == ("a.py::test_a", "a.py::test_b")
    assert row.directory == "/workspace/project"


def test_a_row_of_r2e_gym_brings_its_tests_and_is_based_on_the_commit_before_the_fix() -> None:
    row = read_row(R2E_GYM)
    assert row.repository == "project/project"
    assert row.base_commit == "0123abc~1"
    assert row.test_files == {"r2e_tests/test_1.py": "def test_a(): pass"}
    assert row.tests == ("TestA.test_a",)
    assert row.image == "me/project:1"


def test_an_image_has_one_of_two_names_or_none() -> None:
    assert read_row(SWE_BENCH).image == ""
    assert read_row(SWE_BENCH | {"image_name": "me/image"}).image == "me/image"
    assert read_row(SWE_BENCH | {"docker_image": "me/image"}).image == "me/image"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instance_id", None),
        ("repo", "project"),
        ("repo", "../.."),
        ("repo", "me/../project"),
        ("repo", "me/pro/ject"),
        ("base_commit", "--output=/etc/passwd"),
        ("base_commit", "../1.0"),
        ("problem_statement", " "),
        ("patch", 7),
        ("FAIL_TO_PASS", "a.py::test_a"),
        ("FAIL_TO_PASS", [7]),
    ],
)
def test_a_field_that_does_not_fit_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidMessage, match=f"'{field}'"):
        read_row(SWE_BENCH | {field: value})


def test_a_row_without_tests_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="names no test"):
        read_row(SWE_BENCH | {"FAIL_TO_PASS": [], "PASS_TO_PASS": []})


def test_a_row_whose_tests_are_not_named_as_pytest_names_them_is_refused() -> None:
    names = {"FAIL_TO_PASS": ["test_a (app.tests.TestA)"], "PASS_TO_PASS": []}
    with pytest.raises(InvalidMessage, match="no node id of pytest"):
        read_row(SWE_BENCH | names)


@pytest.mark.parametrize("path", ["/etc/passwd", "../test_1.py", "a/../../b.py"])
def test_a_test_file_that_leads_out_of_the_repository_is_refused(path: str) -> None:
    execution = json.dumps({"test_file_names": [path], "test_file_codes": [""]})
    with pytest.raises(InvalidMessage, match="test_file_names"):
        read_row(R2E_GYM | {"execution_result_content": execution})
