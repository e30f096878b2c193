"""Every message survives its way through msgpack and JSON; rubbish is refused by name."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import (
    ChatMessage,
    Grade,
    Lease,
    Outcome,
    PackedResult,
    Prompt,
    Result,
    RunSettings,
    Sequence,
    Trajectory,
    Turn,
    WeightSpan,
)

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
LOGPROBS = st.floats(-9000, 0, width=32)


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    tokens = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
    return Sequence(
        token_ids=array("i", tokens),
        loss_mask=array("b", [1] * len(tokens)),
        logprobs=array("f", [-0.5] * len(tokens)),
        weight_spans=(WeightSpan(version=draw(st.integers(0, 9)), start=0, end=len(tokens)),),
        turns=(Turn(start=0, end=len(tokens), finish_reason="stop"),),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    tokens = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
    logprobs = draw(st.lists(LOGPROBS, min_size=len(tokens), max_size=len(tokens)))
    return Trajectory(
        token_ids=array("i", tokens),
        loss_mask=array("b", [1] * len(tokens)),
        logprobs=array("f", logprobs),
        weight_spans=(WeightSpan(version=draw(st.integers(0, 9)), start=0, end=len(tokens)),),
        turns=(Turn(start=0, end=len(tokens), finish_reason="stop"),),
        messages=(ChatMessage(role="user", content=draw(st.text())),),
        earlier=tuple(draw(st.lists(sequences(), max_size=2))),
    )


@given(trajectory=trajectories(), reward=FLOATS)
def test_a_result_is_the_same_after_both_codecs(trajectory: Trajectory, reward: float) -> None:
    lease = Lease(job_id="r/g/0", attempt=1, server_id="a", slot="a#0")
    result = Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=reward), trajectory=trajectory
    )
    assert codec.decode(codec.encode(result), Result) == result
    assert codec.decode_json(codec.encode_json(result), Result) == result


@given(trajectory=trajectories(), reward=FLOATS)
def test_what_is_decided_on_and_what_is_trained_on_are_read_from_the_same_bytes(
    trajectory: Trajectory, reward: float
) -> None:
    lease = Lease(job_id="r/g/0", attempt=1, server_id="a", slot="a#0")
    result = Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=reward), trajectory=trajectory
    )
    packed = codec.decode(codec.encode(result), PackedResult)
    assert packed.trajectory is not None
    for found, sent in zip(packed.trajectory.sequences, trajectory.sequences, strict=True):
        assert found.weight_spans == sent.weight_spans
    assert (packed.lease, packed.outcome, packed.reward) == (lease, result.outcome, reward)
    assert codec.decode(codec.encode(packed), Result) == result


def test_tokens_cross_as_raw_bytes() -> None:
    tokens = array("i", range(10_000))
    assert len(codec.encode(tokens)) <= 4 * len(tokens) + 16


@given(data=st.binary(max_size=200))
def test_rubbish_is_an_invalid_message_that_names_what_was_expected(data: bytes) -> None:
    for decode in (codec.decode, codec.decode_json):
        with pytest.raises(InvalidMessage, match="not a valid RunSettings"):
            decode(data, RunSettings)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"run_id": "r", "group_sise": 8}', "unknown field `group_sise`"),
        (b'{"group_size": 8}', "missing required field `run_id`"),
        (b'{"run_id": "r", "group_size": "8"}', "Expected `int`, got `str`"),
        (b'{"run_id": "../etc"}', "'../etc' is not a valid name"),
        (b"[" * 100_000, "not a valid RunSettings"),
    ],
)
def test_a_bad_message_says_what_is_wrong_with_it(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidMessage, match=problem.replace("[", r"\[")):
        codec.decode_json(data, RunSettings)


def test_an_array_of_an_unknown_type_is_refused() -> None:
    doubles = codec.encode({"token_ids": array("d", [1.0])})
    with pytest.raises(InvalidMessage, match="unknown array type 'd'"):
        codec.decode(doubles, Trajectory)


@pytest.mark.parametrize("value", [2**64, "half a pair: \udc80", object()])
def test_what_has_no_place_on_the_wire_is_an_invalid_message(value: object) -> None:
    with pytest.raises(InvalidMessage, match="cannot encode a Prompt"):
        codec.encode(Prompt(prompt_id="p", instance={"data_source": "arithmetic", "x": value}))
