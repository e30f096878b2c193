from array import array

import pytest

from rollyard.logprobs import MAX_AT_ONCE, NO_LOGPROB, are_logprobs

LONG = 2 * MAX_AT_ONCE + 1


def test_finite_numbers_are_logprobs_and_so_are_none_at_all() -> None:
    assert are_logprobs(array("f", [-0.25] * LONG))
    assert are_logprobs([0.0, -40.0])
    assert are_logprobs([])


@pytest.mark.parametrize("place", [0, MAX_AT_ONCE - 1, MAX_AT_ONCE, LONG - 1])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), NO_LOGPROB])
def test_one_number_that_is_no_logprob_is_found_wherever_it_stands(
    wrong: float, place: int
) -> None:
    values = array("f", [-0.25] * LONG)
    values[place] = wrong
    assert not are_logprobs(values)


def test_infinities_that_cancel_each_other_are_no_logprobs() -> None:
    assert not are_logprobs([float("inf"), -float("inf")])
