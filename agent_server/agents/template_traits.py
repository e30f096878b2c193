"""What is to be known of a model's chat template, tried out once when the model is loaded.

A template that takes no messages of tools is given them as the user's. One with which no
conversation can go on is refused, with what it did when it was tried last.
"""

from collections.abc import Mapping, Sequence

import msgspec
import structlog

from agent_server.agents.message_form import MessageForm, Renderer
from agent_server.agents.rewriting import Rewriting, rewriting
from agent_server.agents.stand_ins import (
    ANSWER,
    FROM_TOOL,
    FROM_USER,
    INSTRUCTION,
    OBSERVED,
    PLAIN_ANSWER,
    QUESTION,
    TOOL,
    answers,
)
from agent_server.agents.tokenizer import Tokenizer
from agent_server.agents.turn_ends import TurnEnds, find_turn_ends, first_end
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolSchema

log = structlog.get_logger()


class TemplateTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What one chat template does, and how it is to be used."""

    form: MessageForm
    ends: TurnEnds
    tells_of_tools: bool
    """True if it writes the schemas of tools into the prompt."""
    rewriting: Mapping[tuple[str, bool], Rewriting]
    """What an observation rewrites, by its role and by whether there are tools."""


def learn_traits(tokenizer: Tokenizer, stop_token_ids: Sequence[int]) -> TemplateTraits:
    """Try the chat template out. Raises `InvalidMessage` for one that cannot be used."""
    basis = _basis(tokenizer)
    spelt = {tokenizer.decode([token]): token for token in stop_token_ids}
    named = {text: token for text, token in spelt.items() if text}
    ends = find_turn_ends(Renderer(tokenizer, basis), named, tokenizer.special_tokens)
    form = _form_with_tools(tokenizer, basis, ends.in_history)
    renderer = Renderer(tokenizer, form)
    traits = TemplateTraits(
        form=form,
        ends=ends,
        tells_of_tools=_tells_of_tools(renderer),
        rewriting={
            (said.role, bool(tools)): _rewriting(renderer, said.role, tools)
            for said in (FROM_TOOL, FROM_USER)
            for tools in ((), (TOOL,))
        },
    )
    _report(tokenizer.name, traits)
    return traits


def _basis(tokenizer: Tokenizer) -> MessageForm:
    """The form of conversations without tools."""
    forms = [
        MessageForm(lists_no_tools=listed, content_in_parts=parts)
        for parts in (False, True)
        for listed in (False, True)
    ]
    for form in forms:
        said = _rendered(Renderer(tokenizer, form), [QUESTION, PLAIN_ANSWER])
        if said is not None and QUESTION.content in said and ANSWER in said:
            instructed = _rendered(Renderer(tokenizer, form), [INSTRUCTION, QUESTION]) or ""
            return msgspec.structs.replace(form, system_role=INSTRUCTION.content in instructed)
    Renderer(tokenizer, forms[0]).render([QUESTION])  # raises what is wrong, if it is that
    raise _unusable(tokenizer.name, "leaves out what the user or the assistant says")


def _form_with_tools(
    tokenizer: Tokenizer, basis: MessageForm, ends: Mapping[str, int]
) -> MessageForm:
    problem = None
    for form in basis.variants():
        problem = _problem(Renderer(tokenizer, form), tokenizer.name, ends)
        if problem is None:
            return form
    assert problem is not None
    raise problem


def _problem(renderer: Renderer, name: str, ends: Mapping[str, int]) -> InvalidMessage | None:
    """The reason why an observation cannot follow a response in this form; None if it can."""
    try:
        whole = renderer.render([QUESTION, next(answers(renderer.form, [FROM_TOOL])), FROM_TOOL])
    except InvalidMessage as error:
        return error
    _, answered, behind = whole.partition(ANSWER)
    between, observed, _ = behind.partition(OBSERVED)
    if not answered or _garbled(whole):
        return _unusable(name, "leaves out what the assistant says")
    if not observed:
        return _unusable(name, "leaves out what a tool says, so the policy would never see it")
    if first_end(between, ends) is None:
        known = ", ".join(map(repr, ends)) or "none"
        return InvalidMessage(
            f"the chat template of {name} puts no end token behind an answer: of those, {known} "
            "are known",
            fix="name the one that it puts there with --stop-token",
        )
    return None


def _garbled(whole: str) -> bool:
    """Whether the arguments of a call were written as Python, or as JSON within JSON."""
    return f"'{TOOL.name}': " in whole or f'\\"{TOOL.name}' in whole


def _unusable(name: str, what: str) -> InvalidMessage:
    return InvalidMessage(
        f"the chat template of {name} {what}",
        fix="use a template that writes the messages of all three: user, assistant and tool",
    )


def _tells_of_tools(renderer: Renderer) -> bool:
    said = _rendered(renderer, [QUESTION], [TOOL])
    return said is not None and TOOL.name in said


def _rewriting(renderer: Renderer, role: str, tools: Sequence[ToolSchema]) -> Rewriting:
    observation = FROM_TOOL if role == FROM_TOOL.role else FROM_USER
    try:
        return rewriting(renderer, observation, tools)
    except InvalidMessage:  # raised again where a conversation goes that way
        return Rewriting.NOTHING


def _rendered(
    renderer: Renderer, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema] = ()
) -> str | None:
    """The text of the conversation; None if the template raises."""
    try:
        return renderer.render(messages, tools)
    except InvalidMessage:
        return None


def _report(name: str, traits: TemplateTraits) -> None:
    if traits.ends.unnamed:
        log.info("turns_end_otherwise", model=name, stop_tokens=traits.ends.unnamed)
    if traits.form.tool_role == FROM_USER.role:
        log.warning("tools_speak_as_user", model=name)
    if not traits.form.system_role:
        log.warning("system_message_joins_the_users", model=name)
    if not traits.tells_of_tools:
        log.info("tools_stand_in_system_message", model=name)
