"""The tree of responses, for clients that rewrite their histories at random."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_server.agents.chat_template import ChatTemplate
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage
from tests.agent_server.gateway.rewrites import Ask, Item, Recorded, assistant, system, terse, user
from tests.agent_server.test_chat_template import with_template
from tests.agent_server.test_split_trajectories import FORGETFUL, THOUGHT

OTHERS: list[Item] = [user("u"), user("v"), system("s"), assistant("mine")]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    return terse(tmp_path_factory.mktemp("terse"))


@st.composite
def rewrites(draw: st.DrawFn) -> list[Ask]:
    """Requests, each of which goes on from the history of an earlier one, or from what is left of
    it."""
    asked: list[Ask] = []
    histories: list[list[Item]] = [[user("u")]]
    responses = 0
    for _ in range(draw(st.integers(1, 6))):
        history = list(draw(st.sampled_from(histories)))
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(history) - 1))
            history[at : at + draw(st.integers(0, 1))] = draw(
                st.lists(st.sampled_from(OTHERS), max_size=1)
            )
            history = history or [user("u")]
        items = [*history, draw(st.sampled_from([user("w"), user("x")]))]
        texts = st.sampled_from(["yes", "no ", "", THOUGHT + "so"])
        says = draw(st.lists(texts, min_size=1, max_size=2))
        asked.append(Ask(items, says, cut=draw(st.booleans()) and all(says)))
        histories += [[*items, responses + number] for number in range(len(says))]
        responses += len(says)
    return asked


@settings(max_examples=60)
@given(asked=rewrites())
def test_every_response_is_trained_once_behind_its_exact_prompt(
    template: ChatTemplate, asked: list[Ask]
) -> None:
    recorded = Recorded(template)
    for ask in asked:
        recorded.ask(ask)
    trajectory = recorded.traces.trajectory(truncated=False)
    trained: dict[float, list[int]] = {}
    for sequence in trajectory.sequences:
        assert sum(sequence.loss_mask) == sum(turn.end - turn.start for turn in sequence.turns)
        assert [span.end - span.start for span in sequence.weight_spans] == [
            turn.end - turn.start for turn in sequence.turns
        ]
        for turn in sequence.turns:
            assert all(sequence.loss_mask[turn.start : turn.end])
            trained[-sequence.logprobs[turn.start]] = list(sequence.token_ids[: turn.start])
    in_order = [trained[number] for number in sorted(trained)]
    assert in_order == [list(prompt) for prompt in recorded.prompts]


def test_a_history_that_the_template_rewrites_begins_a_trace(tmp_path: Path) -> None:
    recorded = Recorded(ChatTemplate.load(with_template(tmp_path, FORGETFUL)))
    recorded.ask(Ask([user("u")], [THOUGHT + "one"]))
    recorded.ask(Ask([user("u"), 0, user("v")], [THOUGHT + "two"]))
    recorded.ask(Ask([user("u"), 0, user("v"), 1, user("w")], ["three"]))
    assert recorded.shown() == [
        f"|user\nu;\n|assistant\n[{THOUGHT}one;]",
        f"|user\nu;\n|assistant\none;\n|user\nv;\n|assistant\n[{THOUGHT}two;]",
        "|user\nu;\n|assistant\none;\n|user\nv;\n|assistant\ntwo;\n|user\nw;\n|assistant\n[three;]",
    ]


def test_the_messages_are_those_of_the_last_trace(template: ChatTemplate) -> None:
    recorded = Recorded(template)
    recorded.ask(Ask([user("u")], [THOUGHT + "one"]))
    recorded.ask(Ask([user("sub")], ["found"]))
    recorded.ask(Ask([user("u"), 0, user("v")], ["two"]))
    said = ChatMessage(role="assistant", content=THOUGHT + "one", reasoning="hm")
    messages = recorded.traces.trajectory(truncated=True).messages
    assert messages == (user("u"), said, user("v"), assistant("two"))


def test_what_cannot_be_rendered_leaves_nothing(tmp_path: Path) -> None:
    only_users = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    recorded = Recorded(ChatTemplate.load(with_template(tmp_path, only_users)))
    recorded.ask(Ask([user("u")], ["one"]))
    with pytest.raises(InvalidMessage, match="fails on messages"):
        recorded.ask(Ask([user("u"), 0, system("s"), user("v")], ["two"]))
    assert len(recorded.traces) == 1
