"""The routes on which the scripted server generates, each in the wire form of one dialect.

Inside the server every request is one of vLLM's token route.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from llm_servers.contract import (
    ABORT,
    GENERATE,
    REQUEST_PREFIX,
    Choice,
    GenerateAnswer,
    GenerateRequest,
    Logprobs,
    SamplingParams,
    TokenLogprob,
    Usage,
    VersionSpan,
)
from llm_servers.dialects import prorl, sglang, vllm_completions
from llm_servers.scripted import chat
from llm_servers.scripted.engine import ScriptedGeneration
from llm_servers.scripted.refusals import BadRequestError
from llm_servers.scripted.script import Vocabulary
from rollyard.codec import learnt

T = TypeVar("T")
Read = Callable[[bytes], GenerateRequest]
Write = Callable[[GenerateRequest, ScriptedGeneration, Sequence[float] | None], object]


class GenerateRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route, and what is particular to the servers that have it."""

    path: str
    read: Read
    """The request in a body. Raises `BadRequestError`."""
    write: Write
    """The answer: the response, and the logprobs of the prompt if those were asked for."""
    engine_id: str = "{}"
    """Name that the engine gives to a request."""
    abort: str = ""
    """GenerateRoute on which requests are aborted; empty if there is none."""
    truncates: bool = True
    """False if logprobs are at the temperature alone, whatever the tokens were drawn from."""


def _parsed(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=learnt(kind))
    except msgspec.MsgspecError as error:
        raise BadRequestError(str(error)) from error


def _read_tokens(body: bytes) -> GenerateRequest:
    return _parsed(body, GenerateRequest)


def _write_tokens(
    request: GenerateRequest, generation: ScriptedGeneration, scores: Sequence[float] | None
) -> dict[str, Any]:
    drawn = zip(generation.token_ids, generation.logprobs, strict=False)
    content = [TokenLogprob(token_id=token, logprob=value, rank=1) for token, value in drawn]
    choice = Choice(
        finish_reason=generation.finish_reason,
        token_ids=generation.token_ids,
        weight_versions=spans_of(generation.versions),
        logprobs=None if request.sampling_params.logprobs is None else Logprobs(content=content),
    )
    answer = GenerateAnswer(
        choices=[choice],
        usage=_usage(request, generation),
        prompt_logprobs=None if scores is None else _prompt_logprobs(request, scores),
    )
    whole: dict[str, Any] = msgspec.to_builtins(answer)
    return whole | {"request_id": generation.request_id}


def _read_completions(body: bytes) -> GenerateRequest:
    wanted = _parsed(body, vllm_completions.CompletionRequest)
    params = {name: getattr(wanted, name) for name in _COMPLETION_PARAMS}
    return GenerateRequest(
        token_ids=wanted.prompt,
        sampling_params=SamplingParams(**params),
        request_id=wanted.request_id,
        model=wanted.model or "",
    )


_COMPLETION_PARAMS = tuple(
    set(vllm_completions.CompletionRequest.__struct_fields__)
    & set(SamplingParams.__struct_fields__)
)


def _write_completions(
    request: GenerateRequest, generation: ScriptedGeneration, _: Sequence[float] | None
) -> vllm_completions.CompletionAnswer:
    choice = vllm_completions.CompletionChoice(
        finish_reason=generation.finish_reason,
        token_ids=generation.token_ids,
        logprobs=vllm_completions.CompletionLogprobs(token_logprobs=generation.logprobs),
    )
    return vllm_completions.CompletionAnswer(choices=[choice], usage=_usage(request, generation))


def _read_sglang(body: bytes) -> GenerateRequest:
    wanted = _parsed(body, sglang.SGLangRequest)
    told = wanted.sampling_params
    return GenerateRequest(
        token_ids=wanted.input_ids,
        sampling_params=SamplingParams(
            max_tokens=told.max_new_tokens,
            temperature=told.temperature,
            top_p=told.top_p,
            stop_token_ids=() if told.ignore_eos else told.stop_token_ids,
            ignore_eos=told.ignore_eos,
        ),
        request_id=wanted.rid,
    )


def _write_sglang(
    request: GenerateRequest, generation: ScriptedGeneration, _: Sequence[float] | None
) -> sglang.SGLangAnswer:
    given = itertools.zip_longest(generation.logprobs, generation.token_ids)
    return sglang.SGLangAnswer(
        output_ids=generation.token_ids,
        meta_info=sglang.MetaInfo(
            output_token_logprobs=[(logprob, token, None) for logprob, token in given],
            finish_reason=sglang.FinishReason(type=generation.finish_reason),
            prompt_tokens=len(request.token_ids),
            weight_version=generation.versions[-1] if generation.versions else "default",
        ),
    )


def _read_prorl(body: bytes) -> GenerateRequest:
    """The request, whose stop tokens the server does not know: they are not in the contract."""
    wanted = _parsed(body, prorl.ProRLRequest)
    return GenerateRequest(
        token_ids=wanted.prompt_ids,
        sampling_params=SamplingParams(
            max_tokens=wanted.max_tokens, temperature=wanted.temperature, top_p=wanted.top_p
        ),
    )


def _write_prorl(
    _: GenerateRequest, generation: ScriptedGeneration, __: Sequence[float] | None
) -> prorl.ProRLAnswer:
    return prorl.ProRLAnswer(response_ids=generation.token_ids, logprobs=generation.logprobs)


def _usage(request: GenerateRequest, generation: ScriptedGeneration) -> Usage:
    return Usage(prompt_tokens=len(request.token_ids), completion_tokens=len(generation.token_ids))


def spans_of(versions: list[str]) -> list[VersionSpan]:
    """The maximal runs of tokens that were sampled under one version."""
    found, start = [], 0
    for version, group in itertools.groupby(versions):
        end = start + len(list(group))
        found.append(VersionSpan(version=version, start=start, end=end))
        start = end
    return found


def _prompt_logprobs(
    request: GenerateRequest, scores: Sequence[float]
) -> list[dict[int, TokenLogprob] | None]:
    scored = zip(request.token_ids[1:], scores[1:], strict=True)
    return [None, *({token: TokenLogprob(logprob=value, rank=1)} for token, value in scored)]


_TOKENS = GenerateRoute(
    path=GENERATE,
    read=_read_tokens,
    write=_write_tokens,
    engine_id=REQUEST_PREFIX + "{}",
    abort=ABORT,
)
_COMPLETIONS = GenerateRoute(
    path=vllm_completions.COMPLETIONS,
    read=_read_completions,
    write=_write_completions,
    engine_id=vllm_completions.ENGINE_ID,
    abort=vllm_completions.ABORT,
)
_SGLANG = GenerateRoute(
    path=sglang.SGLANG_GENERATE,
    read=_read_sglang,
    write=_write_sglang,
    abort=sglang.ABORT,
    truncates=False,
)
_PRORL = GenerateRoute(path=prorl.PRORL_GENERATE, read=_read_prorl, write=_write_prorl)

KINDS: Mapping[str, tuple[GenerateRoute, ...]] = {
    "vllm": (_TOKENS, _COMPLETIONS),
    "vllm-completions": (_COMPLETIONS,),
    "sglang": (_SGLANG,),
    "prorl": (_PRORL,),
}
"""The routes with token ids of each kind of server that can be stood in for."""
_WITH_CHAT = ("vllm", "vllm-completions")


def routes(kind: str, vocabulary: Vocabulary) -> tuple[GenerateRoute, ...]:
    """All routes on which a server of this `kind`, one of `KINDS`, generates."""
    if kind not in _WITH_CHAT:
        return KINDS[kind]
    texts = chat.Chat(vocabulary)
    route = GenerateRoute(
        path=chat.CHAT_COMPLETIONS,
        read=texts.read,
        write=texts.write,
        engine_id=chat.ENGINE_ID,
    )
    return (*KINDS[kind], route)
