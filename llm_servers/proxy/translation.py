"""ProRL's `/generate` for servers that do not have it: as a request for tokens and back."""

import msgspec

from llm_servers.contract import GENERATE, GenerateAnswer, GenerateRequest, SamplingParams
from llm_servers.dialects.prorl import ProRLAnswer, ProRLRequest
from llm_servers.proxy.asked import AskedOfLLM, read_asked
from rollyard.codec import learnt
from rollyard.errors import InvalidMessage, LLMUnavailable


def as_tokens(asked: AskedOfLLM) -> AskedOfLLM:
    """The same request in vLLM's words. Raises `InvalidMessage`."""
    try:
        wanted = msgspec.json.decode(asked.body, type=learnt(ProRLRequest))
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"no request of ProRL's contract: {error}") from error
    sampling = SamplingParams(
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        top_p=wanted.top_p,
        seed=wanted.seed,
        stop_token_ids=wanted.stop_token_ids,
        logprobs=0,
    )
    request = GenerateRequest(token_ids=wanted.prompt_ids, sampling_params=sampling)
    return read_asked(GENERATE, msgspec.json.encode(request))


def as_prorl(content: bytes) -> bytes:
    """vLLM's answer in ProRL's words. Raises `LLMUnavailable` for half an answer."""
    try:
        (choice,) = msgspec.json.decode(content, type=learnt(GenerateAnswer)).choices
    except (msgspec.MsgspecError, ValueError) as error:
        raise LLMUnavailable(f"an LLM server gave no response in tokens: {error}") from error
    if choice.finish_reason not in ("stop", "length"):
        raise LLMUnavailable(f"an LLM server ended a response with {choice.finish_reason!r}")
    tokens = choice.token_ids or ()
    return msgspec.json.encode(ProRLAnswer(response_ids=tokens, logprobs=choice.sampled_logprobs))
