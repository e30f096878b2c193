"""The trajectory builder: every token once, exactly where it was sampled."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.agents.trajectory import PrefixBroken, TrajectoryBuilder
from llm_servers.generation import NOTHING, Generation
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolCall, WeightSpan

tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20)
SAID = ChatMessage(role="assistant", content="")


@st.composite
def generations(draw: st.DrawFn) -> Generation:
    ids = draw(tokens)
    cut = draw(st.integers(0, len(ids)))
    bounds = [(0, cut, 3), (cut, len(ids), 4)]
    return Generation(
        token_ids=tuple(ids),
        logprobs=tuple(
            draw(st.lists(st.floats(-50, 0, width=32), min_size=len(ids), max_size=len(ids)))
        ),
        weight_spans=tuple(
            WeightSpan(version=version, start=start, end=end)
            for start, end, version in bounds
            if start < end
        ),
        finish_reason="stop",
    )


@given(prompt=tokens, turns=st.lists(st.tuples(generations(), tokens), min_size=1, max_size=6))
def test_every_prompt_is_the_previous_one_and_what_followed_it(
    prompt: list[int], turns: list[tuple[Generation, list[int]]]
) -> None:
    builder = TrajectoryBuilder(prompt, [])
    expected = list(prompt)
    for generation, observation in turns:
        assert list(builder.prompt()) == expected
        builder.add_response(builder.prompt(), generation, SAID)
        builder.add_observation(observation, [])
        expected += [*generation.token_ids, *observation]
    assert list(builder.finish(truncated=False).token_ids) == expected


turns_and_what_follows = st.lists(
    st.tuples(generations(), st.booleans(), tokens), min_size=1, max_size=6
)


@given(prompt=tokens, turns=turns_and_what_follows)
def test_every_turn_is_in_one_sequence_behind_exactly_its_prompt(
    prompt: list[int], turns: list[tuple[Generation, bool, list[int]]]
) -> None:
    """What follows a turn is an observation, or the prompt of a new sequence."""
    builder = TrajectoryBuilder(prompt, [])
    expected = [list(prompt)]
    prompts = []
    for generation, rewritten, following in turns:
        prompts.append(list(builder.prompt()))
        assert len(builder) == len(prompts[-1])
        builder.add_response(builder.prompt(), generation, SAID)
        expected[-1] += generation.token_ids
        assert builder.version == generation.weight_spans[-1].version
        if rewritten:
            builder.begin_sequence(following, [])
            expected.append(list(following))
        else:
            builder.add_observation(following, [])
            expected[-1] += following
    assert builder.turns == len(turns)
    if turns and turns[-1][1]:
        expected.pop()  # a prompt that was not answered
    sequences = builder.finish(truncated=False).sequences
    assert [list(each.token_ids) for each in sequences] == expected
    taken = [(each, turn) for each in sequences for turn in each.turns]
    for (each, turn), (generation, *_), before in zip(taken, turns, prompts, strict=True):
        assert list(each.token_ids[: turn.start]) == before
        assert tuple(each.token_ids[turn.start : turn.end]) == generation.token_ids
        assert tuple(each.logprobs[turn.start : turn.end]) == generation.logprobs
    for each in sequences:
        sampled = [at for turn in each.turns for at in range(turn.start, turn.end)]
        assert [at for at, bit in enumerate(each.loss_mask) if bit] == sampled
        assert [at for span in each.weight_spans for at in range(span.start, span.end)] == sampled


@given(prompt=tokens, turns=st.lists(st.tuples(generations(), tokens), min_size=1, max_size=6))
def test_mask_logprobs_and_weight_spans_lie_on_the_sampled_tokens_alone(
    prompt: list[int], turns: list[tuple[Generation, list[int]]]
) -> None:
    builder = TrajectoryBuilder(prompt, [])
    for generation, observation in turns:
        builder.add_response(builder.prompt(), generation, SAID)
        builder.add_observation(observation, [])
    trajectory = builder.finish(truncated=False)
    sampled: list[int] = []
    for turn, (generation, _) in zip(trajectory.turns, turns, strict=True):
        assert tuple(trajectory.token_ids[turn.start : turn.end]) == generation.token_ids
        assert tuple(trajectory.logprobs[turn.start : turn.end]) == generation.logprobs
        sampled += range(turn.start, turn.end)
    assert [i for i, bit in enumerate(trajectory.loss_mask) if bit] == sampled
    assert all(trajectory.logprobs[i] == 0 for i, bit in enumerate(trajectory.loss_mask) if not bit)
    assert [i for span in trajectory.weight_spans for i in range(span.start, span.end)] == sampled
    assert trajectory.prompt_length == len(prompt)


def test_weight_spans_keep_their_versions_across_turns() -> None:
    builder = TrajectoryBuilder([9, 9], [])
    first = Generation(
        token_ids=(1, 2, 3),
        logprobs=(-1.0, -2.0, -3.0),
        weight_spans=(
            WeightSpan(version=0, start=0, end=1),
            WeightSpan(version=1, start=1, end=3),
        ),
        finish_reason="stop",
    )
    builder.add_response((9, 9), first, SAID)
    assert builder.finish(truncated=False).weight_spans == (
        WeightSpan(version=0, start=2, end=3),
        WeightSpan(version=1, start=3, end=5),
    )


@given(prompt=tokens, other=tokens, generation=generations())
def test_a_prompt_that_is_not_the_continuation_is_refused(
    prompt: list[int], other: list[int], generation: Generation
) -> None:
    builder = TrajectoryBuilder(prompt, [])
    if other == prompt:
        other = [*other, 0]
    with pytest.raises(PrefixBroken):
        builder.add_response(other, generation, SAID)
    assert list(builder.prompt()) == prompt


def test_a_nan_logprob_never_gets_into_a_trajectory() -> None:
    builder = TrajectoryBuilder([1], [])
    nan = Generation(
        token_ids=(2,),
        logprobs=(float("nan"),),
        weight_spans=(WeightSpan(version=0, start=0, end=1),),
        finish_reason="stop",
    )
    builder.add_response((1,), nan, SAID)
    with pytest.raises(InvalidMessage, match="NaN"):
        builder.finish(truncated=False)


def test_the_conversation_is_kept_as_text_too() -> None:
    opening = ChatMessage(role="user", content="q")
    builder = TrajectoryBuilder([1], [opening])
    generation = Generation(
        token_ids=(2,),
        logprobs=(-1.0,),
        weight_spans=(WeightSpan(version=0, start=0, end=1),),
        finish_reason="stop",
    )
    builder.add_response((1,), generation, ChatMessage(role="assistant", content="a"))
    observed = ChatMessage(role="tool", content="o")
    builder.add_observation([3], [observed])
    trajectory = builder.finish(truncated=True)
    assert trajectory.messages == (opening, ChatMessage(role="assistant", content="a"), observed)
    assert trajectory.truncated
    assert trajectory.token_ids == array("i", [1, 2, 3])


def test_the_history_tells_what_was_sampled_and_what_the_last_prompt_was_made_of() -> None:
    call = ToolCall(call_id="c", name="f", arguments={})
    example = ChatMessage(role="assistant", content="", tool_calls=(call,))
    builder = TrajectoryBuilder([1], [example])
    builder.add_response([1], NOTHING, ChatMessage(role="assistant", content="a"))
    builder.begin_sequence([2, 3], [ChatMessage(role="user", content="o")])
    history = builder.history
    assert history.messages == builder.finish(truncated=False).messages
    assert (history.opening, history.prompted) == (1, 3)
