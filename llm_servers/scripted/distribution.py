"""The distribution that a token is sampled from, derived from the logprob that the script gives it.

The token has that logprob under the model; all others share the rest evenly. Sampling parameters
turn this distribution into the one sampled from, in vLLM's order: temperature, min_p, top_k, top_p.
"""

import math

from llm_servers.contract import SamplingParams


def drawn_logprob(logprob: float, vocabulary_size: int, params: SamplingParams) -> float:
    """The logprob of the token in the distribution that it was sampled from.

    As in vLLM, a greedy token has the model's own logprob.
    """
    if params.temperature == 0 or _shapes_nothing(params):
        return logprob
    others = len(params.allowed_token_ids or range(vocabulary_size)) - 1
    token = math.exp(logprob / params.temperature)
    other = ((1 - math.exp(logprob)) / (vocabulary_size - 1)) ** (1 / params.temperature)
    if other < params.min_p * token:
        others = 0
    if params.top_k > 0:
        others = min(others, params.top_k - 1)
    nucleus = params.top_p * (token + others * other) - token  # mass that other tokens must add
    others = max(0, min(others, math.ceil(nucleus / other))) if other else 0
    return math.log(token / (token + others * other))


def _shapes_nothing(params: SamplingParams) -> bool:
    """Whether tokens are sampled from the model's own distribution."""
    shape = (params.temperature, params.top_p, params.top_k, params.min_p)
    return shape == (1.0, 1.0, 0, 0.0) and not params.allowed_token_ids
