"""The calls of each model family, as its models write them."""

from typing import Any

import pytest

from agent_server.agents.tool_calls.formats import OUR_FORMATS, choose_format
from agent_server.agents.tool_calls.parser import ResponseParser
from agent_server.environments.protocol import Response
from rollyard.errors import LaunchError
from rollyard.messages import ToolSchema

TOOLS = (
    ToolSchema(
        name="bash",
        description="Run a command.",
        parameters={"properties": {"command": {"type": "string"}, "seconds": {"type": "integer"}}},
    ),
)
LS = ("bash", {"command": "ls"})
PWD = ("bash", {"command": "pwd", "seconds": 5})


def parse(name: str, text: str) -> Response:
    return ResponseParser(OUR_FORMATS[name], TOOLS).parse(text)


def deepseek(text: str) -> str:
    """The text with DeepSeek's special tokens in place of their plain spelling."""
    return text.replace("|", "\uff5c").replace("_", "\u2581")


WRITTEN = [
    (
        "hermes",
        'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>\n'
        '<tool_call>{"name": "bash", "arguments": "{\\"command\\": \\"pwd\\", \\"seconds\\": 5}"}'
        "</tool_call>",
    ),
    (
        "qwen3_coder",
        "I look.\n\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=bash>\n<parameter=command>\npwd\n"
        "</parameter>\n<parameter=seconds>\n5\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "llama3_json",
        'I look.<|python_tag|>{"name": "bash", "parameters": {"command": "ls"}}; '
        '{"name": "bash", "parameters": {"command": "pwd", "seconds": 5}}',
    ),
    (
        "mistral",
        'I look.[TOOL_CALLS] [{"name": "bash", "arguments": {"command": "ls"}}, '
        '{"name": "bash", "arguments": {"command": "pwd", "seconds": 5}}]',
    ),
    (
        "mistral",
        'I look.[TOOL_CALLS]bash[ARGS]{"command": "ls"}'
        '[TOOL_CALLS]bash[ARGS]{"command": "pwd", "seconds": 5}',
    ),
    (
        "deepseek",
        "I look."
        + deepseek("<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>bash\n")
        + '```json\n{"command": "ls"}\n```'
        + deepseek("<|tool_call_end|>\n<|tool_call_begin|>function<|tool_sep|>bash\n")
        + '```json\n{"command": "pwd", "seconds": 5}\n```'
        + deepseek("<|tool_call_end|><|tool_calls_end|>"),
    ),
    (
        "deepseek",
        "I look."
        + deepseek("<|tool_calls_begin|><|tool_call_begin|>bash<|tool_sep|>")
        + '{"command": "ls"}'
        + deepseek("<|tool_call_end|><|tool_call_begin|>bash<|tool_sep|>")
        + '{"command": "pwd", "seconds": 5}'
        + deepseek("<|tool_call_end|><|tool_calls_end|>"),
    ),
    (
        "kimi",
        "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0"
        '<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_end|>'
        "<|tool_call_begin|>functions.bash:1<|tool_call_argument_begin|>"
        '{"command": "pwd", "seconds": 5}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    (
        "glm",
        "I look.<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n"
        "</tool_call>\n<tool_call>bash<arg_key>command</arg_key><arg_value>pwd</arg_value>"
        "<arg_key>seconds</arg_key><arg_value>5</arg_value></tool_call>",
    ),
    (
        "pythonic",
        "I look.<|tool_call_start|>[bash(command='ls'), bash(command=\"pwd\", seconds=5)]"
        "<|tool_call_end|>",
    ),
]


@pytest.mark.parametrize(("name", "text"), WRITTEN)
def test_text_and_calls_are_told_apart(name: str, text: str) -> None:
    response = parse(name, text)
    assert response.text == text
    assert response.content == "I look."
    assert [(call.name, call.arguments) for call in response.calls] == [LS, PWD]
    assert response.malformed == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3_json", '{"name": "bash", "parameters": {"command": "ls"}}'),
        ("pythonic", '[bash(command="ls")]'),
        ("pythonic", '<|python_start|>[bash(command="ls")]<|python_end|>'),
        ("mistral", '[TOOL_CALLS]{"name": "bash", "arguments": {"command": "ls"}}'),
    ],
)
def test_calls_may_be_the_whole_response(name: str, text: str) -> None:
    response = parse(name, text)
    assert [(call.name, call.arguments) for call in response.calls] == [LS]
    assert response.content == ""


@pytest.mark.parametrize("name", OUR_FORMATS)
@pytest.mark.parametrize(
    "text", ["The answer is 7.", '{"answer": 7}', "[1, 2]", "a < b && c > d", "```json\n{}\n```"]
)
def test_text_without_calls_is_content(name: str, text: str) -> None:
    response = parse(name, text)
    assert (response.content, response.calls, response.malformed) == (text, (), ())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("hermes", "<tool_call>bash ls</tool_call>", "not JSON: Expecting value"),
        ("hermes", '<tool_call>{"name": "bash"}', "lacks '</tool_call>'"),
        ("hermes", "<tool_call>12*13</tool_call>", "must be a JSON object"),
        ("hermes", '{"name": "bash"}</tool_call>', "closes no tool call"),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>', "has no name"),
        ("hermes", '<tool_call>["bash"]</tool_call>', "must be a JSON object"),
        ("hermes", '<tool_call>{"name": "b", "arguments": 7}</tool_call>', "arguments of 'b'"),
        ("hermes", '<tool_call>{"name": "b", "arguments": {"a": NaN}}</tool_call>', "not JSON"),
        ("hermes", '<tool_call>{"name": "b", "arguments": {"a": 1e999}}</tool_call>', "finite"),
        ("hermes", f'<tool_call>{{"name": "b", "arguments": {{"a": {2**64}}}}}</tool_call>', "64"),
        ("hermes", '<tool_call>{"name": "\\ud800"}</tool_call>', "not Unicode"),
        ("hermes", f'<tool_call>{{"name": "b", "arguments": {"[" * 9000}', "not JSON"),
        ("qwen3_coder", "<tool_call><function=bash></tool_call>", "'</function>'"),
        ("qwen3_coder", "<tool_call>bash</function></tool_call>", "lacks '<function='"),
        (
            "qwen3_coder",
            "<tool_call><function=bash><parameter=command>ls</function></tool_call>",
            "'command' does not end",
        ),
        ("llama3_json", '<|python_tag|>bash.call("ls")', "not JSON"),
        ("llama3_json", '{"name": "bash", "parameters": {"command": "ls"}', "not JSON"),
        ("mistral", "[TOOL_CALLS]", "lacks '[ARGS]'"),
        ("mistral", "[TOOL_CALLS][]", "no tool call follows"),
        ("mistral", '[TOOL_CALLS]bash{"command": "ls"}', "lacks '[ARGS]'"),
        ("deepseek", deepseek("<|tool_calls_begin|>") + "bash", "follows"),
        ("kimi", "<|tool_calls_section_begin|>bash", "follows"),
        ("glm", "<tool_call>bash ls", "lacks '</tool_call>'"),
        ("glm", "<tool_call>bash<arg_key>command</arg_key></tool_call>", "lacks '<arg_value>'"),
        (
            "glm",
            "<tool_call>bash<arg_key>command</arg_key><arg_value>ls</tool_call>",
            "'command' does not end",
        ),
        ("pythonic", '[bash("ls")]', "by its name"),
        ("pythonic", "[bash(command=ls)]", "a literal"),
        ("pythonic", "[bash(command=open('x').read())]", "a literal"),
        ("pythonic", "[bash(command='ls']", "not a list of Python calls"),
        ("pythonic", "<|python_start|>bash(command='ls')<|python_end|>", "in brackets"),
        ("bare", "so <tool_call>1+1</tool_call>", "beside a tool call"),
        ("bare", "<tool_call>1+1</tool_call>", "one tool with one argument"),
    ],
)
def test_a_malformed_call_is_told_in_a_sentence(name: str, text: str, said: str) -> None:
    response = parse(name, text)
    assert response.calls == ()
    assert len(response.malformed) == 1
    assert said in response.malformed[0]


MISTAKES = {"pythonic": ("command=", ""), "kimi": ("{", "")}


@pytest.mark.parametrize("name", sorted({name for name, _ in WRITTEN} - {"llama3_json"}))
def test_calls_beside_a_malformed_one_are_read(name: str) -> None:
    good = next(text for each, text in reversed(WRITTEN) if each == name)
    response = parse(name, good.replace(*MISTAKES.get(name, ("bash", "")), 1))
    assert [(call.name, call.arguments) for call in response.calls] == [PWD]
    assert len(response.malformed) == 1


def test_a_value_may_spell_the_tags_around_it() -> None:
    command = "echo '</parameter> </tool_call> <tool_call>'"
    xml = (
        f"<tool_call><function=bash><parameter=command>{command}</parameter></function></tool_call>"
    )
    assert parse("qwen3_coder", xml).calls[0].arguments == {"command": command}
    json = f'<tool_call>{{"name": "bash", "arguments": {{"command": "{command}"}}}}</tool_call>'
    assert parse("hermes", json).calls[0].arguments == {"command": command}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("None", {"type": "null"}, None),
        ("None", {"type": ["string", "null"]}, None),
        ("Nonesuch", {"type": ["string", "null"]}, "Nonesuch"),
        ("True", {"type": "string"}, "True"),
        ("7", {"type": ["integer", "null"]}, 7),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("[7]", {"oneOf": [{"type": "integer"}, {"type": "array"}]}, [7]),
        ("7", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, "7"),
        ("7", {"enum": [7, 8]}, 7),
        ("7", {"enum": ["7", "8"]}, "7"),
        ("7", {"const": 7}, 7),
        ("7", {"description": "Anything."}, "7"),
        ("7", True, "7"),
    ],
)
def test_an_argument_in_tags_is_read_as_its_schema_says(text: str, schema: Any, value: Any) -> None:
    tools = (ToolSchema(name="f", description="", parameters={"properties": {"a": schema}}),)
    qwen = f"<tool_call><function=f><parameter=a>\n{text}\n</parameter></function></tool_call>"
    glm = f"<tool_call>f<arg_key>a</arg_key><arg_value>{text}</arg_value></tool_call>"
    for name, written in (("qwen3_coder", qwen), ("glm", glm)):
        (call,) = ResponseParser(OUR_FORMATS[name], tools).parse(written).calls
        assert call.arguments == {"a": value}


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("from='here', to='there'", {"from": "here", "to": "there"}),
        ("command='ls\npwd'", {"command": "ls\npwd"}),
        ("command=\"echo 'a\n\\n'\"", {"command": "echo 'a\n\n'"}),
        ("command='from = 1', class = [\"\n\"]", {"command": "from = 1", "class": ["\n"]}),
    ],
)
def test_pythonic_calls_may_hold_what_python_refuses(
    written: str, arguments: dict[str, Any]
) -> None:
    (call,) = parse("pythonic", f"[bash({written})]").calls
    assert (call.name, call.arguments) == ("bash", arguments)


def test_the_only_argument_of_the_only_tool_needs_no_name() -> None:
    schema = {"properties": {"expression": {"type": "string"}}}
    tools = (ToolSchema(name="calculator", description="", parameters=schema),)
    response = ResponseParser(OUR_FORMATS["bare"], tools).parse("<tool_call>37*48</tool_call>")
    assert [(call.name, call.arguments) for call in response.calls] == [
        ("calculator", {"expression": "37*48"})
    ]


@pytest.mark.parametrize(
    ("name", "mention"),
    [
        ("hermes", 'return <tool_call>\n{"name": <function-name>}\n</tool_call>'),
        ("qwen3_coder", "<tool_call>\n<function=example>\n<parameter=one>"),
        ("llama3_json", 'Respond in the format {"name": function name, "parameters": dictionary}'),
        ("llama3_json", "{{ '<|python_tag|>' }}"),
        ("mistral", '{{ "[TOOL_CALLS]" }}'),
        ("deepseek", deepseek("{{'<|tool_calls_begin|>'}}")),
        ("kimi", "{{ '<|tool_calls_section_begin|><|tool_call_begin|>' }}"),
        ("glm", "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>"),
        ("pythonic", "{{ '<|tool_call_start|>[' }}"),
        ("hermes", "{{ message.content }}"),
    ],
)
def test_a_format_is_chosen_by_what_the_chat_template_mentions(name: str, mention: str) -> None:
    assert choose_format(OUR_FORMATS, "", mention) == name


def test_a_named_format_needs_no_mention() -> None:
    assert choose_format(OUR_FORMATS, "mistral", "<tool_call>") == "mistral"
    with pytest.raises(LaunchError, match=r"no tool-call format 'yaml'; name one of: deepseek, "):
        choose_format(OUR_FORMATS, "yaml", "")
