"""The messages of NeMo-Gym's contract with an agent server."""

from typing import Any

import msgspec

from agent_server.prorl.messages import SequenceTold


class TokenCounts(msgspec.Struct, frozen=True):
    """Tokens of all requests to the policy, each with its whole prompt."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class GymResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The whole trajectory as one response of OpenAI's Responses API.

    The last item of what was sampled in one turn has that turn's `prompt_token_ids`,
    `generation_token_ids` and `generation_log_probs`. The prompt of each begins with all tokens of
    those before it.
    """

    id: str
    created_at: float
    output: tuple[dict[str, Any], ...]
    status: str
    incomplete_details: dict[str, str] | None
    """Null unless a limit ended the trajectory."""
    usage: TokenCounts
    tools: tuple[dict[str, Any], ...]
    model: str = "policy"
    object: str = "response"
    parallel_tool_calls: bool = True
    tool_choice: str = "auto"
    earlier: tuple[SequenceTold, ...] = ()
    """Sequences before the one that the items have the tokens of, where there are several."""


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trajectory and its reward. What failed is an error, and never one of these."""

    reward: float
    response: GymResponse
    responses_create_params: dict[str, Any]
    truncated: bool
    turns: int
    reward_components: dict[str, float] = {}
    """Parts that sum up to the reward."""


class RunsToAggregate(msgspec.Struct, frozen=True):
    """Answers of `/run`, without their responses but for the `usage`."""

    verify_responses: list[dict[str, Any]]


class RunsAggregated(msgspec.Struct, frozen=True):
    """Statistics of the numbers in answers of `/run`, as `mean/reward`."""

    group_level_metrics: list[dict[str, Any]]
    """Those of each task."""
    agent_metrics: dict[str, float]
    key_metrics: dict[str, float]
    """The means."""
