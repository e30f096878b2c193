"""Public names, sampling parameters and transcripts, in the forms of ProRL's contract."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.prorl.names import environment_of, instance_id_of
from agent_server.prorl.sampling import read_sampling
from agent_server.prorl.transcript import messages_told
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, Limits, Sequence, ToolCall, Trajectory, Turn

HERE = ("swebench", "deepscaler", "deepcoder", "codeforces", "taco", "apps", "gym")

tokens = st.lists(st.integers(0, 300), min_size=1, max_size=5)
roles = st.sampled_from(["user", "tool", "system"])


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("gym", "gym"),
        ("swebench", "swebench"),
        ("swe-gym", "swebench"),
        ("SWE_Gym/train", "swebench"),
        ("r2e-gym", "swebench"),
        ("deepscaler_preview", "deepscaler"),
        ("codeforces-easy", "codeforces"),
        ("apps_introductory", "apps"),
        (None, "swebench"),
    ],
)
def test_a_public_name_has_its_environment(source: str | None, name: str) -> None:
    assert environment_of({"data_source": source}, HERE) == name


@pytest.mark.parametrize("source", ["chess", "codecontests", "", 7])
def test_a_name_that_is_not_here_is_refused_with_those_that_are(source: object) -> None:
    with pytest.raises(InvalidMessage, match="deepscaler, gym"):
        environment_of({"data_source": source}, HERE)


def test_a_row_without_an_id_is_named_by_what_it_has() -> None:
    extra = {"name": "aime", "split": "train", "index": 7}
    assert instance_id_of({"data_source": "deepscaler", "extra_info": extra}) == (
        "deepscaler_aime_train_7"
    )
    assert instance_id_of({"instance_id": "a__b-1"}) == "a__b-1"


def test_the_token_limits_are_the_models() -> None:
    params = {"max_input_tokens": 1000, "max_output_tokens": 24, "max_iterations": 7}
    sampling, limits = read_sampling(params, job_seconds=5)
    assert (sampling.temperature, sampling.max_response_tokens) == (1.0, 24)
    assert limits == Limits(max_turns=7, max_tokens=1024, job_seconds=5)


def test_a_response_may_be_as_long_as_the_context_if_nothing_is_said() -> None:
    sampling, limits = read_sampling({"max_model_len": 900, "top_k": -1, "stop": []}, job_seconds=5)
    assert (sampling.max_response_tokens, limits.max_tokens) == (900, 900)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Openings with and without examples, and turns with and without observations."""
    messages = [ChatMessage("user", "go"), *draw(st.lists(st.just(ChatMessage("assistant", "so"))))]
    messages.append(ChatMessage("user", "now"))
    ids = array("i", draw(tokens))
    turns = []
    for _ in range(draw(st.integers(1, 4))):
        start = len(ids)
        ids.extend(draw(tokens))
        turns.append(Turn(start=start, end=len(ids), finish_reason="stop"))
        messages.append(ChatMessage("assistant", "said"))
        ids.extend(draw(tokens))
        messages += [ChatMessage(role, "seen") for role in draw(st.lists(roles, max_size=2))]
    if draw(st.booleans()):  # the policy's response was the last
        del ids[turns[-1].end :]
        while messages[-1].role != "assistant":
            messages.pop()
    return Trajectory(
        token_ids=ids,
        loss_mask=array("b", bytes(len(ids))),
        logprobs=array("f", bytes(4 * len(ids))),
        weight_spans=(),
        turns=tuple(turns),
        messages=tuple(messages),
    )


@given(trajectories())
def test_the_tokens_of_all_messages_are_the_sequence(trajectory: Trajectory) -> None:
    told = messages_told(trajectory)
    ids: list[int] = []
    sampled = []
    for message in told:
        if message.input_ids is not None:
            assert message.role == "assistant"
            assert message.input_ids == ids
            sampled.append((len(ids), len(ids) + len(message.token_ids)))
        ids += message.token_ids
    assert ids == list(trajectory.token_ids)
    assert sampled == [(turn.start, turn.end) for turn in trajectory.turns]
    kept = [message.content for message in told if message.content]
    assert kept == [message.content for message in trajectory.messages]


def test_of_a_conversation_that_was_written_anew_the_messages_have_the_last_sequence() -> None:
    def sequence(*ids: int) -> dict[str, Any]:
        return {
            "token_ids": array("i", ids),
            "loss_mask": array("b", bytes(len(ids))),
            "logprobs": array("f", bytes(4 * len(ids))),
            "weight_spans": (),
            "turns": (Turn(start=2, end=3, finish_reason="stop"),),
        }

    call = ToolCall(call_id="c1", name="look", arguments={"at": "ä"})
    messages = (
        ChatMessage("user", "go"),
        ChatMessage("assistant", "hm", tool_calls=(call,)),
        ChatMessage("user", "on"),
        ChatMessage("assistant", "done"),
    )
    trajectory = Trajectory(
        **sequence(5, 6, 7), messages=messages, earlier=(Sequence(**sequence(1, 2, 3)),)
    )
    told = messages_told(trajectory)
    assert [message.token_ids for message in told] == [[], [], [5, 6], [7]]
    assert [message.input_ids for message in told] == [None, None, None, [5, 6]]
    assert told[1].tool_calls == (
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": "ä"}'},
        },
    )
