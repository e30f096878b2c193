"""How the scripted server says no, and the checks that it makes of a request, which are vLLM's."""

from llm_servers.contract import GenerateRequest


class BadRequestError(Exception):
    """A request that cannot be served; the message goes to the caller with status 400."""


class ServerFailure(Exception):
    """A failure of the server, which answers with its message and status 500."""


def check(request: GenerateRequest, *, vocabulary_size: int, max_model_len: int) -> None:
    """Raise `BadRequestError` for a request that cannot be served."""
    params, tokens = request.sampling_params, request.token_ids
    if not tokens:
        raise BadRequestError("token_ids: List should have at least 1 item after validation, not 0")
    unknown = [token for token in tokens if not 0 <= token < vocabulary_size]
    if unknown:
        raise BadRequestError(f"Token id {unknown[0]} is out of vocabulary")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise BadRequestError(f"max_tokens must be at least 1, got {params.max_tokens}.")
    if params.temperature < 0:
        raise BadRequestError(f"temperature must be non-negative, got {params.temperature}.")
    if len(tokens) >= max_model_len:
        raise BadRequestError(
            f"The decoder prompt (length {len(tokens)}) is longer than the maximum model length "
            f"of {max_model_len}."
        )
