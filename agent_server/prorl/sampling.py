"""The `sampling_params` of a request, as the sampling and the limits of a Job.

Some that clients send are for software that is not here (`model`, `api_key`, `custom_tokenizer`,
`native_tool_calling` and their like): they change nothing. Those that would change the distribution
sampled from, and cannot be obeyed, are refused.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from rollyard.codec import learnt
from rollyard.errors import InvalidMessage
from rollyard.messages import Limits, Sampling

N = TypeVar("N", int, float)

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "stop": ("", []),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
}
"""Parameters that are not obeyed, and their values that ask for nothing, beside null."""


class _Asked(msgspec.Struct, frozen=True):
    """The parameters that are obeyed."""

    temperature: float | None = None
    top_p: float | None = None
    max_iterations: int | None = None
    max_output_tokens: int | None = None
    max_input_tokens: int | None = None
    max_model_len: int | None = None

    @property
    def total_tokens(self) -> int:
        """Most tokens of prompt and responses together."""
        if self.max_model_len is not None:
            return self.max_model_len
        if self.max_input_tokens is None or self.max_output_tokens is None:
            return Limits().max_tokens
        return self.max_input_tokens + self.max_output_tokens


def read_sampling(params: Mapping[str, Any], *, job_seconds: float) -> tuple[Sampling, Limits]:
    """Raises `InvalidMessage` for what cannot be obeyed."""
    for name, neutral in NEUTRAL.items():
        if (given := params.get(name)) is not None and given not in neutral:
            raise InvalidMessage(
                f"sampling_params has {name} = {str(given)[:100]}, which is not supported",
                fix="leave it out: responses are sampled by temperature and top_p alone",
            )
    try:
        asked = msgspec.convert(dict(params), learnt(_Asked))
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"not valid sampling_params: {error}") from error
    total, usual = asked.total_tokens, Sampling()
    limits = Limits(
        max_turns=_or(asked.max_iterations, Limits().max_turns),
        max_tokens=total,
        job_seconds=job_seconds,
    )
    sampling = Sampling(
        temperature=_or(asked.temperature, usual.temperature),
        top_p=_or(asked.top_p, usual.top_p),
        max_response_tokens=_or(asked.max_output_tokens, total),
    )
    return sampling, limits


def _or(given: N | None, usual: N) -> N:
    return usual if given is None else given
