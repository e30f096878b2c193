"""Chat templates as tokens, and which of them are refused."""

import shutil
from pathlib import Path

import pytest

from agent_server.agents.chat_template import ChatTemplate
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage
from tests.llm_fixtures import POLICY

USER = ChatMessage(role="user", content="37*48")
TOOL = ChatMessage(role="tool", content="1776")


def with_template(tmp_path: Path, jinja: str) -> Path:
    """A copy of the policy's tokenizer with another chat template."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(POLICY / name, tmp_path / name)
    (tmp_path / "chat_template.jinja").write_text(jinja)
    return tmp_path


def test_the_prompt_ends_where_the_assistant_begins(template: ChatTemplate) -> None:
    expected = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
    assert template.prompt([USER]) == template.encode(expected)


def test_an_observation_begins_after_the_end_token(template: ChatTemplate) -> None:
    expected = "\n<|im_start|>tool\n1776<|im_end|>\n<|im_start|>assistant\n"
    assert template.observation([TOOL]) == template.encode(expected)


def test_prompt_response_and_observation_are_the_whole_conversation(
    template: ChatTemplate,
) -> None:
    response = [*template.encode("<tool_call>37*48</tool_call>"), template.eos_token_id]
    whole = template.prompt(
        [USER, ChatMessage(role="assistant", content="<tool_call>37*48</tool_call>"), TOOL]
    )
    assert [*template.prompt([USER]), *response, *template.observation([TOOL])] == whole


def test_text_keeps_special_tokens_but_the_last_end_token(template: ChatTemplate) -> None:
    ids = template.encode("<tool_call>1</tool_call> 2 , 3")
    assert template.text([*ids, template.eos_token_id]) == "<tool_call>1</tool_call> 2 , 3"


def test_a_template_that_rewrites_earlier_turns_is_refused(tmp_path: Path) -> None:
    jinja = (
        "{% for m in messages %}"
        "{% if m.role == 'assistant' and not loop.last and loop.index < messages | length - 1 %}"
        "<|im_start|>assistant\n[gone]<|im_end|>\n"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    with pytest.raises(InvalidMessage, match="not append-only"):
        ChatTemplate.load(with_template(tmp_path, jinja))


def test_a_template_that_counts_the_turns_is_refused(tmp_path: Path) -> None:
    jinja = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{{ messages | length }}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    with pytest.raises(InvalidMessage, match="not append-only"):
        ChatTemplate.load(with_template(tmp_path, jinja))


def test_a_template_without_the_end_token_is_refused(tmp_path: Path) -> None:
    jinja = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    with pytest.raises(InvalidMessage, match="end token"):
        ChatTemplate.load(with_template(tmp_path, jinja))


def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessage, match=f"no model at {tmp_path / 'none'}"):
        ChatTemplate.load(tmp_path / "none")


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessage, match=f"cannot load a tokenizer from {tmp_path}"):
        ChatTemplate.load(tmp_path)


def test_a_tokenizer_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    with_template(tmp_path, "").joinpath("chat_template.jinja").unlink()
    with pytest.raises(InvalidMessage, match="no chat template"):
        ChatTemplate.load(tmp_path)
