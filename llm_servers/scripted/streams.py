"""Responses of the token route in server-sent events, as vLLM sends them.

Each event has the tokens since the one before. The last one with a choice says why the response
ended, and under which weights each of its tokens was sampled.
"""

from collections.abc import Iterator

import msgspec

from llm_servers.contract import (
    Choice,
    GenerateAnswer,
    GenerateRequest,
    Logprobs,
    TokenLogprob,
    Usage,
)
from llm_servers.scripted.distribution import drawn_logprob
from llm_servers.scripted.engine import ScriptedGeneration
from llm_servers.scripted.refusals import ServerFailure
from llm_servers.scripted.routes import spans_of


def stream_of(
    request: GenerateRequest,
    generation: ScriptedGeneration,
    drawn: Iterator[int],
    vocabulary_size: int,
) -> Iterator[bytes]:
    """The events of a response while it is `drawn`."""
    told = 0

    def event() -> bytes:
        nonlocal told
        new = range(told, len(generation.token_ids))
        told = new.stop
        return _event(_answer(request, generation, new, vocabulary_size))

    try:
        for _ in drawn:
            if not generation.finish_reason:
                yield event()
    except ServerFailure as failure:
        error = {"message": str(failure), "type": "InternalServerError", "code": 500}
        yield _event({"error": error})
    else:
        yield event()
        usage = Usage(prompt_tokens=len(request.token_ids), completion_tokens=told)
        yield _event(GenerateAnswer(choices=[], usage=usage))
    yield b"data: [DONE]\n\n"


def _answer(
    request: GenerateRequest, generation: ScriptedGeneration, new: range, vocabulary_size: int
) -> GenerateAnswer:
    content = [
        TokenLogprob(
            token_id=generation.token_ids[at],
            logprob=drawn_logprob(
                generation.logprobs[at], vocabulary_size, request.sampling_params
            ),
            rank=1,
        )
        for at in new
    ]
    ended = generation.finish_reason or None
    choice = Choice(
        finish_reason=ended,
        token_ids=[each.token_id for each in content if each.token_id is not None],
        logprobs=Logprobs(content=content),
        weight_versions=spans_of(generation.versions) if ended else None,
    )
    return GenerateAnswer(choices=[choice])


def _event(data: object) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
