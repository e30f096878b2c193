"""Each trait of chat templates in the field is served token-exactly, or refused in a sentence."""

from functools import cache

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.conversation import Conversation
from rollyard.errors import InvalidMessage
from rollyard.messages import Sequence, Trajectory
from tests.agent_server.fakes import Says
from tests.agent_server.templates.byte_tokenizer import template_of
from tests.agent_server.templates.rehearsal import HEARD, OPENING, SAID, SEARCH, rehearse, responses
from tests.agent_server.templates.traits import REFUSED, SERVED


@cache
def rehearsed(name: str) -> tuple[ChatTemplate, Trajectory, Says]:
    trait = SERVED[name]
    template = template_of(trait.jinja, trait.stops)
    return template, *rehearse(template, trait.tools)


def sampled(sequence: Sequence) -> list[list[int]]:
    return [list(sequence.token_ids[turn.start : turn.end]) for turn in sequence.turns]


@pytest.mark.parametrize("name", SERVED)
def test_what_was_sampled_is_what_is_trained_behind_what_was_sent(name: str) -> None:
    trait = SERVED[name]
    template, trajectory, policy = rehearsed(name)
    sequences = trajectory.sequences
    assert tuple(len(each.turns) for each in sequences) == trait.turns
    end = template.stop_token_ids[0]
    said = [tokens for each in sequences for tokens in sampled(each)]
    assert said == [[*template.encode(text), end] for text in responses(template)]
    prompts = [list(each.token_ids[: turn.start]) for each in sequences for turn in each.turns]
    assert prompts == [list(request.token_ids) for request in policy.requests]
    for each in sequences:
        trained = [each.token_ids[at] for at, bit in enumerate(each.loss_mask) if bit]
        assert trained == [token for tokens in sampled(each) for token in tokens]
        *ids, last = each.token_ids
        assert last == end
        assert template.encode(template.text(each.token_ids)) == ids


@pytest.mark.parametrize("name", SERVED)
def test_the_policy_is_shown_all_that_is_said(name: str) -> None:
    trait = SERVED[name]
    template, trajectory, policy = rehearsed(name)
    first = template.text(policy.requests[0].token_ids)
    assert all(message.content in first for message in OPENING)
    assert (SEARCH.description in first) is bool(trait.tools)
    for request, said in zip(policy.requests[1:], HEARD, strict=True):
        text = template.text(request.token_ids)
        assert all(each in text for each in said)
    assert trajectory.messages[-1].content == SAID[-1]


@pytest.mark.parametrize("name", SERVED)
def test_turns_end_and_tools_speak_as_the_template_has_it(name: str) -> None:
    trait, (template, *_) = SERVED[name], rehearsed(name)
    assert template.traits.form.tool_role == trait.tool_role
    assert template.traits.ends.unnamed == trait.also_stops
    named = [template.encode(end)[0] for end in (*trait.stops, *trait.also_stops)]
    assert list(template.stop_token_ids) == named


@pytest.mark.parametrize("name", [name for name, trait in SERVED.items() if trait.own_rendering])
def test_a_template_that_only_adds_text_would_write_the_same(name: str) -> None:
    trait = SERVED[name]
    template, trajectory, _ = rehearsed(name)
    history = Conversation(messages=trajectory.messages[:-1], opening=len(OPENING), prompted=0)
    whole = template.prompt(history.as_text(), trait.tools)
    assert whole == list(trajectory.token_ids[: trajectory.turns[-1].start])


@pytest.mark.parametrize(("jinja", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_template_that_cannot_be_served_is_refused(jinja: str, sentence: str) -> None:
    with pytest.raises(InvalidMessage, match=sentence) as refused:
        template_of(jinja, ["<|end|>"])
    assert len(str(refused.value).splitlines()) == 1
