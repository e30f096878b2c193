"""Small chat templates, each with one trait of templates in the field, and what becomes of them."""

from typing import NamedTuple

from rollyard.messages import ToolSchema
from tests.agent_server.templates.rehearsal import SEARCH


class Trait(NamedTuple):
    """A template that the rehearsed conversation is held with."""

    jinja: str
    turns: tuple[int, ...] = (4,)
    """Turns of each sequence; several where the conversation is written anew."""
    stops: tuple[str, ...] = ("<|end|>",)
    """Tokens that the model's files name; its eos first."""
    also_stops: tuple[str, ...] = ()
    """Tokens found to end a turn, although no file names them."""
    tool_role: str = "tool"
    own_rendering: bool = False
    """True if the tokens are those that the template makes of the whole conversation."""
    tools: tuple[ToolSchema, ...] = (SEARCH,)


TOOLS = (
    "{% if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "<|end|>{% endif %}"
)
GENERATION = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
LAST_USER = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
)
CALLS = "{% for call in m.tool_calls or [] %}<|call|>{{ call.function.name }}CALL{% endfor %}"
CALL_OBJECT = CALLS.replace("CALL", "{{ call.function.arguments | tojson }}")
WITHOUT_REASONING = "{{ m.content.split('</think>')[-1] }}"


def each(turn: str) -> str:
    return "{% for m in messages %}" + turn + "{% endfor %}"


def written(
    assistant: str = "{{ m.content }}" + CALL_OBJECT,
    other: str = "{{ m.content }}",
    generation: str = GENERATION,
) -> str:
    """A template that writes messages one after the other, each behind the name of its role."""
    said = "{% if m.role == 'assistant' %}" + assistant + "{% else %}" + other + "{% endif %}"
    return TOOLS + each("<|{{ m.role }}|>" + said + "<|end|>") + generation


def unless(condition: str, problem: str, template: str) -> str:
    refused = "{% if not (" + condition + ") %}{{ raise_exception('" + problem + "') }}{% endif %}"
    return each(refused) + template


HEADER = "<|{{ m.role }}|>"

CALLS_SO_FAR = (
    "{% set ids = namespace(all=[]) %}{% for m in messages %}"
    "{% for call in m.tool_calls or [] %}{% set ids.all = ids.all + [call.id] %}{% endfor %}"
)
ANSWERS_A_CALL = unless(
    "m.role != 'tool' or m.tool_call_id in ids.all", "no such call", ""
).replace("{% for m in messages %}", CALLS_SO_FAR)
TOOLS_LAST = (
    LAST_USER
    + each(
        "{% if loop.index0 == ns.last %}"
        + TOOLS
        + "{% endif %}"
        + HEADER
        + "{{ m.content }}"
        + CALL_OBJECT
        + "<|end|>"
    )
    + GENERATION
)

SERVED = {
    "only adds text": Trait(written(), own_rendering=True),
    "raises where there are tools": Trait(
        "{% if tools %}{{ raise_exception('no tools') }}{% endif %}"
        + written().removeprefix(TOOLS),
        own_rendering=True,
    ),
    "begins with a token of its own": Trait("{{ bos_token }}" + written(), own_rendering=True),
    "tells of tools nowhere": Trait(written().removeprefix(TOOLS), own_rendering=True),
    "opens reasoning in the generation prompt": Trait(
        written(generation=GENERATION.replace("|>{", "|><think>\n{"))
    ),
    "closes reasoning in the generation prompt": Trait(
        written(generation=GENERATION.replace("|>{", "|><think>\n\n</think>\n\n{"))
    ),
    "puts empty reasoning before answers": Trait(
        written("<think>\n\n</think>\n\n{{ m.content }}" + CALL_OBJECT)
    ),
    "names a channel in the generation prompt": Trait(
        written(
            "all\n{{ m.content }}" + CALL_OBJECT, generation=GENERATION.replace("|>{", "|>all\n{")
        )
    ),
    "puts a blank behind answers": Trait(written("{{ m.content }} " + CALL_OBJECT)),
    "trims what is said": Trait(
        written("{{ m.content | trim }}" + CALL_OBJECT, "{{ m.content | trim }}")
    ),
    "quotes what tools say": Trait(
        written(other="{{ m.content | tojson if m.role == 'tool' else m.content }}"),
        own_rendering=True,
    ),
    "tells ids and names of calls": Trait(
        written(other="{{ m.tool_call_id }}{{ m.name }}: {{ m.content }}"), own_rendering=True
    ),
    "raises where a tool answers no call": Trait(ANSWERS_A_CALL + written()),
    "wants ids of nine letters": Trait(
        unless("m.role != 'tool' or m.tool_call_id | length == 9", "bad id", written())
    ),
    "adds up the arguments of calls": Trait(
        written("{{ m.content }}" + CALLS.replace("CALL", "{{ '' + call.function.arguments }}"))
    ),
    "goes through the arguments of calls": Trait(
        written(
            "{{ m.content }}"
            + CALLS.replace(
                "CALL",
                "{% for name, value in call.function.arguments | items %}"
                "{{ name }}={{ value }}{% endfor %}",
            )
        )
    ),
    "writes arguments as Python would": Trait(
        written("{{ m.content }}" + CALLS.replace("CALL", "{{ call.function.arguments }}"))
    ),
    "writes calls where there is no content": Trait(
        written("{% if m.content is none %}" + CALL_OBJECT + "{% else %}{{ m.content }}{% endif %}")
    ),
    "takes one call a message": Trait(
        unless("m.tool_calls | default([]) | length < 2", "one call at once", written())
    ),
    "leaves calls out": Trait(written("{{ m.content }}"), own_rendering=True),
    "lets results stand in for the generation prompt": Trait(
        written(
            generation=GENERATION.replace("prompt %}", "prompt and messages[-1].role != 'tool' %}")
        )
    ),
    "leaves reasoning out of history": Trait(
        TOOLS
        + each(
            HEADER
            + "{% if m.role == 'assistant'"
            + " and (loop.last or messages[loop.index].role == 'tool') %}"
            + WITHOUT_REASONING
            + "{% else %}{{ m.content }}{% endif %}<|end|>"
        )
        + GENERATION
    ),
    "counts the messages": Trait(written() + "{{ messages | length }}"),
    "goes through tools without a question": Trait(
        "{% for tool in tools %}{{ tool | tojson }}{% endfor %}" + written().removeprefix(TOOLS)
    ),
    "wants content in parts": Trait(
        TOOLS
        + each(HEADER + "{% for part in m.content %}{{ part.text }}{% endfor %}<|end|>")
        + GENERATION
    ),
    "raises on tools' messages": Trait(
        unless("m.role != 'tool'", "no tools here", written()), tool_role="user"
    ),
    "leaves tools' messages out": Trait(
        TOOLS
        + each("{% if m.role != 'tool' %}" + HEADER + "{{ m.content }}<|end|>{% endif %}")
        + GENERATION,
        tool_role="user",
    ),
    "lets tools speak within the assistant's turn": Trait(
        TOOLS
        + each(
            "{% if m.role == 'tool' %}[{{ m.content }}]{% else %}" + HEADER + "{{ m.content }}"
            "{% if loop.last or messages[loop.index].role != 'tool' %}<|end|>{% endif %}{% endif %}"
        )
        + GENERATION,
        tool_role="user",
    ),
    "wants user and assistant in turns": Trait(
        each(
            "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
            "{{ raise_exception('roles must alternate') }}{% endif %}"
        )
        + written(),
        tool_role="user",
    ),
    "leaves system messages out": Trait(
        each("{% if m.role != 'system' %}" + HEADER + "{{ m.content }}<|end|>{% endif %}")
        + GENERATION
    ),
    "ends turns with a token that no file names": Trait(
        written().replace("<|end|>", "<|turn|>"), stops=("<|eos|>",), also_stops=("<|turn|>",)
    ),
    "ends turns with the next role": Trait(
        TOOLS + each(HEADER + "\n{{ m.content }}") + GENERATION,
        stops=("<|eos|>",),
        also_stops=("<|user|>", "<|tool|>"),
    ),
    "ends the last answer with another token": Trait(
        written("{{ m.content }}" + CALL_OBJECT + "{% if loop.last %}<|return|>{% endif %}"),
        stops=("<|return|>",),
    ),
    "ends calls with another token": Trait(
        TOOLS
        + each(
            HEADER + "{{ m.content }}{% if m.tool_calls %}" + CALL_OBJECT + "<|more|>"
            "{% else %}<|end|>{% endif %}"
        )
        + GENERATION,
        stops=("<|end|>", "<|more|>"),
    ),
    "ends turns with a token within an end": Trait(
        written("{{ m.content }}" + CALL_OBJECT + "<|shut|>"), also_stops=()
    ),
    "leaves reasoning out once the user speaks": Trait(
        LAST_USER
        + TOOLS
        + each(
            HEADER
            + "{% if m.role == 'assistant' and loop.index0 < ns.last %}"
            + WITHOUT_REASONING
            + "{% else %}{{ m.content }}{% endif %}<|end|>"
        )
        + GENERATION,
        turns=(3, 1),
    ),
    "tells of tools before the last user": Trait(TOOLS_LAST, turns=(3, 1)),
    "tells of tools before the last user, and there are none": Trait(
        TOOLS_LAST, tools=(), own_rendering=True
    ),
    "tells of tools before the last user, and wants a call for each result": Trait(
        ANSWERS_A_CALL + TOOLS_LAST, turns=(3, 1)
    ),
    "finds the last user by what it says": Trait(
        "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
        + each(
            "{% if m == users[-1] %}" + TOOLS + "{% endif %}" + HEADER + "{{ m.content }}<|end|>"
        )
        + GENERATION,
        turns=(3, 1),
    ),
    "shortens old answers": Trait(
        TOOLS
        + each(
            HEADER
            + "{% if m.role == 'assistant' and loop.index < messages | length - 1 %}[gone]"
            + "{% else %}{{ m.content }}{% endif %}<|end|>"
        )
        + GENERATION,
        turns=(1, 1, 1, 1),
    ),
    "takes no sampled text": Trait(
        LAST_USER + unless("m.role != 'assistant' or '<x>' not in m.content", "a tag", written()),
    ),
}

REFUSED = {
    "needs a variable of its own": (
        "{{ functions.names }}",
        r"fails on messages of the roles user: UndefinedError: 'functions' is undefined; use a "
        "template that takes these roles in this order",
    ),
    "raises whatever it is given": ("{{ raise_exception('no') }}", "TemplateError: no; use a"),
    "is no template": ("{% if %}", "TemplateSyntaxError"),
    "ends turns with plain text": (
        each("{{ m.role }}: {{ m.content }}\n") + "assistant: ",
        "puts no end token behind an answer: of those, '<|end|>' are known; name the one",
    ),
    "leaves out what the assistant says": (
        written("..."),
        "leaves out what the user or the assistant says; use a template that writes",
    ),
    "leaves out what the user says": (written(other="..."), "leaves out what the user"),
}
