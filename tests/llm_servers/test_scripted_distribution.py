"""The stand-in's distribution after sampling parameters, against one written out in full."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_servers.contract import SamplingParams
from llm_servers.scripted.distribution import drawn_logprob

VOCABULARY = 300

logprobs = st.floats(-4.0, -0.01)
shapes = st.builds(
    SamplingParams,
    temperature=st.floats(0.3, 3.0),
    top_p=st.floats(0.05, 1.0),
    top_k=st.integers(0, 2 * VOCABULARY),
    min_p=st.floats(0.0, 1.0),
)


def written_out(logprob: float, params: SamplingParams) -> set[float]:
    """Over the whole vocabulary, of which the token is the first. Where the nucleus ends within
    rounding of another token, either end will do."""
    likelihood = math.exp(logprob)
    rest = (1 - likelihood) / (VOCABULARY - 1)
    heated = [p ** (1 / params.temperature) for p in (likelihood, *[rest] * (VOCABULARY - 1))]
    kept = [weight for weight in heated if weight >= params.min_p * heated[0]]
    kept = kept[: params.top_k or VOCABULARY]
    total, found = sum(kept), set()
    for top_p in (params.top_p - 1e-9, params.top_p + 1e-9):
        nucleus, mass = 0, 0.0
        while nucleus < len(kept) and mass < top_p * total:
            mass += kept[nucleus]
            nucleus += 1
        found.add(math.log(kept[0] / sum(kept[:nucleus])))
    return found


@given(logprob=logprobs, params=shapes)
def test_a_drawn_token_has_its_share_of_what_was_left_to_draw(
    logprob: float, params: SamplingParams
) -> None:
    drawn = drawn_logprob(logprob, VOCABULARY, params)
    assert any(drawn == pytest.approx(each, abs=1e-9) for each in written_out(logprob, params))


@given(logprob=logprobs)
def test_what_is_drawn_from_the_model_itself_has_its_logprob(logprob: float) -> None:
    assert drawn_logprob(logprob, VOCABULARY, SamplingParams()) == logprob
    greedy = SamplingParams(temperature=0.0, top_p=0.5)
    assert drawn_logprob(logprob, VOCABULARY, greedy) == logprob


@given(logprob=logprobs)
def test_a_token_that_was_forced_is_certain(logprob: float) -> None:
    assert drawn_logprob(logprob, VOCABULARY, SamplingParams(allowed_token_ids=[7])) == 0.0
