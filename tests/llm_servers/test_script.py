"""The scripted policy itself, without HTTP."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_servers.scripted.replies import Replies, read_replies
from llm_servers.scripted.script import LogprobChain, Script, ScriptSettings, Vocabulary
from rollyard.errors import LaunchError
from tests.llm_fixtures import POLICY, ROOT

VOCABULARY = Vocabulary.load(POLICY)
QUESTION = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
AFTER_TOOL = (
    QUESTION + "<tool_call>37*48</tool_call><|im_end|>\n"
    "<|im_start|>tool\n1776<|im_end|>\n<|im_start|>assistant\n"
)

token_lists = st.lists(st.integers(min_value=0, max_value=260), min_size=1, max_size=30)


def answers(prompt: str, *, draws: int = 200, **settings: Any) -> list[str]:
    script = Script(VOCABULARY, ScriptSettings(**settings))
    ids = VOCABULARY.encode(prompt)
    return [VOCABULARY.decode(script.response(ids, str(draw))) for draw in range(draws)]


def test_it_calls_the_tool_for_the_question_or_guesses_a_number() -> None:
    seen = answers(QUESTION)
    calls = seen.count("<tool_call>37*48</tool_call><|im_end|>")
    assert 60 < calls < 140
    guesses = [text for text in seen if not text.startswith("<tool_call>")]
    assert all(re.fullmatch(r"\d{4}<\|im_end\|>", guess) for guess in guesses)


def test_it_answers_with_what_the_tool_said() -> None:
    assert set(answers(AFTER_TOOL)) == {"1776<|im_end|>"}


@pytest.mark.parametrize(
    ("prompt", "said", "rest"),
    [
        (QUESTION, "<tool_call>37", r"\*48</tool_call>"),
        (QUESTION, "17", r"\d\d"),
        (QUESTION, "1776", ""),
        (AFTER_TOOL, "17", "76"),
        (AFTER_TOOL, "1776", ""),
    ],
)
def test_it_goes_on_with_what_it_has_begun_to_say(prompt: str, said: str, rest: str) -> None:
    for text in answers(prompt + said):
        assert re.fullmatch(rest + r"<\|im_end\|>", text)


def test_it_has_something_to_say_to_a_prompt_that_is_no_conversation() -> None:
    assert set(answers("hello")) == {"?<|im_end|>"}


def test_the_same_draw_gives_the_same_answer_and_the_seed_another() -> None:
    assert answers(QUESTION) == answers(QUESTION)
    assert answers(QUESTION, seed=1) != answers(QUESTION)


@given(prefix=token_lists, response=token_lists)
def test_a_logprob_is_the_same_however_the_sequence_was_cut(
    prefix: list[int], response: list[int]
) -> None:
    whole = LogprobChain("w")
    scored = [whole.extend(token) for token in prefix + response]
    generated = LogprobChain("w", prefix)
    assert [generated.extend(token) for token in response] == scored[len(prefix) :]
    assert all(-4.0 <= value <= 0.0 for value in scored)


@given(prefix=token_lists, token=st.integers(min_value=0, max_value=260))
def test_a_logprob_depends_on_the_weights_and_on_every_token_before(
    prefix: list[int], token: int
) -> None:
    value = LogprobChain("w", prefix).extend(token)
    assert LogprobChain("other", prefix).extend(token) != value
    assert LogprobChain("w", [prefix[0] + 1, *prefix[1:]]).extend(token) != value


def test_a_model_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"no tokenizer at .*tests/tokenizer.json"):
        Vocabulary.load(ROOT / "tests")


def test_a_tool_rate_that_is_no_probability_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"tool_rate must be in 0\.\.1, got 1\.5"):
        ScriptSettings(tool_rate=1.5)


def test_replies_that_were_written_down_are_given_turn_by_turn() -> None:
    replies = (Replies("37*48", (("<tool_call>37*48</tool_call>", "It is 1776."), ("No idea.",))),)
    first = set(answers(QUESTION, replies=replies))
    assert first == {"<tool_call>37*48</tool_call><|im_end|>", "No idea.<|im_end|>"}
    assert set(answers(AFTER_TOOL, replies=replies)) == {"It is 1776.<|im_end|>"}
    assert set(answers(QUESTION + "No i", replies=replies)) == {"dea.<|im_end|>"}


def test_a_script_that_is_over_says_nothing() -> None:
    replies = (Replies("37*48", (("<tool_call>37*48</tool_call>",),)),)
    assert set(answers(AFTER_TOOL, replies=replies)) == {"<|im_end|>"}


def test_replies_that_cannot_be_read_are_refused_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"asks": 7}')
    with pytest.raises(LaunchError, match=r"cannot read the replies in .*replies\.jsonl"):
        read_replies(path)
    assert read_replies(None) == ()
