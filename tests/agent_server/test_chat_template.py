"""Chat templates as tokens, and which of them are refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage
from tests.llm_fixtures import POLICY

USER = ChatMessage(role="user", content="37*48")
TOOL = ChatMessage(role="tool", content="1776")


CHATML = (POLICY / "chat_template.jinja").read_text()
WITHOUT_TOOLS = (
    "{% for m in messages %}{% if m.role != 'tool' %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(tmp_path: Path, jinja: str, **generation_config: Any) -> Path:
    """A copy of the policy's tokenizer with another chat template."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(POLICY / name, tmp_path / name)
    (tmp_path / "chat_template.jinja").write_text(jinja)
    if generation_config:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation_config))
    return tmp_path


def test_the_prompt_ends_where_the_assistant_begins(template: ChatTemplate) -> None:
    expected = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
    assert template.prompt([USER]) == template.encode(expected)


def test_an_observation_begins_after_the_end_token(template: ChatTemplate) -> None:
    expected = "\n<|im_start|>tool\n1776<|im_end|>\n<|im_start|>assistant\n"
    assert template.observation([TOOL], after=template.end_token_id) == template.encode(expected)


def test_prompt_response_and_observation_are_the_whole_conversation(
    template: ChatTemplate,
) -> None:
    response = [*template.encode("<tool_call>37*48</tool_call>"), template.end_token_id]
    whole = template.prompt(
        [USER, ChatMessage(role="assistant", content="<tool_call>37*48</tool_call>"), TOOL]
    )
    assert [
        *template.prompt([USER]),
        *response,
        *template.observation([TOOL], after=template.end_token_id),
    ] == whole


def test_text_keeps_special_tokens_but_the_last_end_token(template: ChatTemplate) -> None:
    ids = template.encode("<tool_call>1</tool_call> 2 , 3")
    assert template.text([*ids, template.end_token_id]) == "<tool_call>1</tool_call> 2 , 3"


def test_every_token_that_the_models_files_name_ends_a_response(tmp_path: Path) -> None:
    template = ChatTemplate.load(with_template(tmp_path, CHATML, eos_token_id=[256, 258, 257]))
    assert set(template.stop_token_ids) == {256, 257, 258}
    assert template.end_token_id == 258
    for end in template.stop_token_ids:
        assert template.text([*template.encode("1776"), end]) == "1776"


def test_config_json_names_the_stop_tokens_where_there_is_no_generation_config(
    tmp_path: Path,
) -> None:
    with_template(tmp_path, CHATML).joinpath("config.json").write_text(
        '{"eos_token_id": [258, 256]}'
    )
    assert set(ChatTemplate.load(tmp_path).stop_token_ids) == {256, 258}
    with_template(tmp_path, CHATML, eos_token_id=258)
    assert set(ChatTemplate.load(tmp_path).stop_token_ids) == {258}


def test_a_setting_may_name_more_stop_tokens(tmp_path: Path) -> None:
    model = with_template(tmp_path, CHATML)
    template = ChatTemplate.load(model, stop_tokens=["<|endoftext|>"])
    assert set(template.stop_token_ids) == {256, 258}
    with pytest.raises(InvalidMessage, match="'no such' is 7 tokens"):
        ChatTemplate.load(model, stop_tokens=["no such"])


def test_a_generation_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessage, match=r"generation_config\.json cannot be read"):
        ChatTemplate.load(with_template(tmp_path, CHATML, eos_token_id="end"))


def test_an_observation_stands_behind_the_templates_own_end_token(tmp_path: Path) -> None:
    template = ChatTemplate.load(with_template(tmp_path, CHATML, eos_token_id=[258, 256]))
    usual = template.observation([TOOL], after=258)
    assert template.observation([TOOL], after=256) == [258, *usual]


def test_the_template_may_end_turns_with_another_token_than_the_tokenizers(tmp_path: Path) -> None:
    model = with_template(tmp_path, CHATML, eos_token_id=[256, 258])
    config = json.loads((model / "tokenizer_config.json").read_text())
    config["eos_token"] = "<|endoftext|>"
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.load(model)
    assert template.end_token_id == 258
    assert set(template.stop_token_ids) == {256, 258}


def test_a_template_that_leaves_out_what_a_tool_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessage, match="leaves out what a tool says"):
        ChatTemplate.load(with_template(tmp_path, WITHOUT_TOOLS))


@pytest.mark.parametrize(
    ("jinja", "reason"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "TemplateError: roles must alternate"),
        ("{{ functions.names }}", "UndefinedError: 'functions' is undefined"),
        ("{{ none | length }}", "TypeError"),
        ("{% if %}", "TemplateSyntaxError"),
    ],
)
def test_what_a_template_raises_becomes_one_sentence(
    tmp_path: Path, jinja: str, reason: str
) -> None:
    with pytest.raises(
        InvalidMessage, match=f"fails on messages of the roles user: {reason}"
    ) as told:
        ChatTemplate.load(with_template(tmp_path, jinja))
    assert len(str(told.value).splitlines()) == 1


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
