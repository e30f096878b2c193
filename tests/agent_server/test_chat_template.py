"""Chat templates as tokens, and which of them are refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.conversation import Conversation
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolCall, ToolSchema
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


def test_the_template_tells_where_responses_end_if_no_file_of_the_model_does(
    tmp_path: Path,
) -> None:
    model = with_template(tmp_path, CHATML)
    config = json.loads((model / "tokenizer_config.json").read_text())
    del config["eos_token"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    assert ChatTemplate.load(model).stop_token_ids == (258,)


def test_calls_are_written_in_the_models_format_where_the_template_leaves_them_out(
    template: ChatTemplate,
) -> None:
    call = ToolCall(call_id="c7", name="search", arguments={"query": "37*48"})
    called = ChatMessage(role="assistant", content="So: ", tool_calls=(call,))
    told = template.text(template.prompt([USER, called, TOOL]))
    assert f"assistant\nSo: {template.tool_calls.render([call])}<|im_end|>\n" in told


def test_tools_speak_as_the_user_where_the_template_leaves_out_what_they_say(
    tmp_path: Path,
) -> None:
    template = ChatTemplate.load(with_template(tmp_path, WITHOUT_TOOLS))
    expected = "\n<|im_start|>user\n1776\n\n37*48<|im_end|>\n<|im_start|>assistant\n"
    ids = template.observation([TOOL, USER], after=template.end_token_id)
    assert template.text(ids) == expected


def test_a_template_that_leaves_out_what_the_user_says_is_refused(tmp_path: Path) -> None:
    jinja = CHATML.replace("message.content", "message.content if message.role == 'assistant'")
    with pytest.raises(InvalidMessage, match="leaves out what the user or"):
        ChatTemplate.load(with_template(tmp_path, jinja))


WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\nTools:"
    "{% for tool in tools %} {{ tool.function.name }}{{ tool.function.parameters | tojson }}"
    "{% endfor %}<|im_end|>\n{% endif %}"
)
SEARCH = ToolSchema(
    name="search",
    description="Search <|im_start|> the web.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}},
)


def test_the_template_tells_the_policy_of_the_tools(tmp_path: Path) -> None:
    template = ChatTemplate.load(with_template(tmp_path, WITH_TOOLS + CHATML))
    told = template.text(template.prompt([USER], [SEARCH]))
    assert told.startswith('<|im_start|>system\nTools: search{"type": "object", "properties": ')
    assert "Tools:" not in template.text(template.prompt([USER]))


@pytest.mark.parametrize(
    "opening", [[USER], [ChatMessage(role="system", content="Be brief."), USER]]
)
def test_a_system_message_tells_of_the_tools_where_the_template_does_not(
    template: ChatTemplate, opening: list[ChatMessage]
) -> None:
    ids = template.prompt(opening, [SEARCH])
    told = template.text(ids)
    said = "Be brief.\n\n" if len(opening) == 2 else ""
    assert told.startswith(f"<|im_start|>system\n{said}You can call these functions:\n")
    assert json.dumps(SEARCH.as_function()) in told
    assert told.count('<tool_call>\n{"name": "search", "arguments": {"query": "..."}}') == 1
    turns = len(opening) + (len(opening) == 1) + 1
    assert ids.count(template.encode("<|im_start|>")[0]) == turns  # the schema opens none


CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}[{{ call.id }} {{ call.function.name }} "
    "{{ ARGUMENTS }}]{% endfor %}"
    "{% if m.tool_call_id %} for {{ m.tool_call_id }} of {{ m.name }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    ("arguments", "as_text"),
    [("call.function.arguments | tojson", False), ("'' + call.function.arguments", True)],
)
def test_calls_reach_the_template_with_arguments_in_the_form_that_it_takes(
    tmp_path: Path, arguments: str, as_text: bool
) -> None:
    model = with_template(tmp_path, CALLS.replace("ARGUMENTS", arguments))
    template = ChatTemplate.load(model)
    assert template.traits.form.arguments_as_text is as_text
    call = ToolCall(call_id="c7", name="search", arguments={"query": "ü"})
    called = ChatMessage(
        role="assistant", content="So: ", tool_calls=(call,), reasoning="It is unknown."
    )
    answered = ChatMessage(role="tool", content="1776", tool_call_id="c7", name="search")
    told = template.text(template.prompt([USER, called, answered]))
    assert '(It is unknown.)So: [c7 search {"query": "ü"}]<|im_end|>' in told
    assert "\n1776 for c7 of search<|im_end|>\n" in told


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


FIRST, SECOND = (ChatMessage(role="assistant", content=text) for text in ("first", "second"))


def history(*messages: ChatMessage) -> Conversation:
    """A conversation of which the environment said the first message before the first prompt."""
    return Conversation(messages=messages, opening=1, prompted=1)


def test_where_old_answers_are_left_out_the_conversation_is_written_anew(tmp_path: Path) -> None:
    jinja = (
        "{% for m in messages %}"
        "{% if m.role == 'assistant' and not loop.last and loop.index < messages | length - 1 %}"
        "<|im_start|>assistant\n[gone]<|im_end|>\n"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    template = ChatTemplate.load(with_template(tmp_path, jinja))
    ids = template.rewritten(history(USER, FIRST, TOOL, SECOND), [TOOL])
    assert ids == template.prompt([USER, FIRST, TOOL, SECOND, TOOL])
    assert "[gone]" in template.text(ids)


def test_where_the_turns_are_counted_every_observation_reads_like_the_first(tmp_path: Path) -> None:
    jinja = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{{ messages | length }}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    template = ChatTemplate.load(with_template(tmp_path, jinja))
    assert template.rewritten(history(USER, FIRST), [TOOL]) is None
    ids = template.observation([TOOL], after=template.end_token_id)
    assert template.text(ids).endswith("\n3<|im_start|>assistant\n")


def test_a_template_that_only_adds_rewrites_nothing(template: ChatTemplate) -> None:
    assert template.rewritten(history(USER, FIRST), [TOOL]) is None
    assert template.rewritten(history(USER, FIRST), [USER]) is None


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
