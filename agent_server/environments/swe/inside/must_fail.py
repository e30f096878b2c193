"""Tests that fail as long as pytest and unittest are what they were."""

import unittest

import pytest


def test_a_false_assertion() -> None:
    assert [1] == [2]


def test_an_exception() -> None:
    raise RuntimeError("must fail")


def test_an_exception_that_does_not_come() -> None:
    with pytest.raises(ValueError):
        pass


def test_an_expected_failure_that_nobody_expects() -> None:
    pytest.xfail("not marked")


class TestAssertions(unittest.TestCase):
    def test_equality(self) -> None:
        self.assertEqual(1, 2)

    def test_truth(self) -> None:
        self.assertTrue(False)

    def test_an_early_end(self) -> None:
        raise vars(unittest.case)["_ShouldStop"]
