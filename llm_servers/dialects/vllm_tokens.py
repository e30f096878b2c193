"""vLLM's token-in, token-out route, of servers started with `--enable-scale-out`.

It tells the weight version of every token, and ends an aborted request with what it has.
"""

from llm_servers.contract import (
    ABORT,
    GENERATE,
    REQUEST_PREFIX,
    GenerateAnswer,
    GenerateRequest,
    SamplingParams,
    VersionSpan,
)
from llm_servers.dialects.protocol import LLMCall
from llm_servers.dialects.reading import read_json
from llm_servers.generation import LLMBroken, TurnRequest
from llm_servers.responses import UncheckedResponse
from rollyard.messages import LogprobKind, WeightSpan

PROCESSED_LOGPROBS = "start it with --logprobs-mode processed_logprobs"
REMEDIES = {LogprobKind.TEMPERED: PROCESSED_LOGPROBS, LogprobKind.MODEL: PROCESSED_LOGPROBS}


class VLLMTokens:
    name = "vllm-tokens"
    remedies = REMEDIES

    def generate(self, request: TurnRequest, request_id: str) -> LLMCall:
        body = GenerateRequest(
            request_id=request_id,
            token_ids=list(request.token_ids),
            sampling_params=SamplingParams(
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                max_tokens=request.max_tokens,
                stop_token_ids=request.stop_token_ids,
                ignore_eos=True,  # else the server adds the end tokens of the model's files
                logprobs=0,  # no alternatives: the sampled token's own logprob always comes
            ),
        )
        return LLMCall(GENERATE, body)

    def read(self, content: bytes, request: TurnRequest) -> UncheckedResponse:
        answer = read_json(content, GenerateAnswer)
        if len(answer.choices) != 1:
            raise LLMBroken(f"it gave {len(answer.choices)} choices, not one")
        (choice,) = answer.choices
        told = choice.weight_versions or ()
        return UncheckedResponse(
            token_ids=tuple(choice.token_ids or ()),
            logprobs=choice.sampled_logprobs,
            finish_reason=choice.finish_reason or "",
            weight_spans=tuple(_span(each) for each in told if each.version.isdecimal()),
            unlabelled=next((each.version for each in told if not each.version.isdecimal()), ""),
            prompt_tokens=answer.usage.prompt_tokens if answer.usage else None,
        )

    def abort(self, request_id: str) -> LLMCall:
        return LLMCall(ABORT, {"request_ids": [REQUEST_PREFIX + request_id]})


def _span(span: VersionSpan) -> WeightSpan:
    return WeightSpan(version=int(span.version), start=span.start, end=span.end)


VLLM_TOKENS = VLLMTokens()
