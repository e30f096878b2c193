"""A model's chat template as token ids: the first prompt, and the observations after responses.

- An observation is rendered behind a stand-in conversation and cut off after the assistant's end
  token, so that the tokens of the real conversation are never rendered again: what was sampled
  stays as it was sampled, also where the template would write it otherwise.
- Where the template writes the past anew when a message comes, the next prompt is the whole
  conversation as it is written then (`rewritten`), and the Trajectory is split there.
- A response may end with any stop token. The next observation always follows the one with which
  the template ends a turn, which is added if another was sampled.
- Messages are plain text: only the template writes control tokens. An assistant's message alone is
  taken as the policy would sample it, tool calls and all, but what begins or ends a message.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from agent_server.agents.control_tokens import ControlTokens, pieces
from agent_server.agents.conversation import Conversation
from agent_server.agents.message_form import Renderer
from agent_server.agents.rewriting import REASONING_MARKS, Rewriting
from agent_server.agents.stand_ins import (
    ANSWER,
    FROM_TOOL,
    PLAIN_ANSWER,
    QUESTION,
    answers,
    numbered,
)
from agent_server.agents.stop_tokens import find_stop_tokens
from agent_server.agents.template_traits import learn_traits
from agent_server.agents.tokenizer import Tokenizer
from agent_server.agents.tool_calls.formats import (
    DEFAULT_FORMAT,
    OUR_FORMATS,
    choose_format,
)
from agent_server.agents.tool_calls.protocol import ToolCallFormat
from agent_server.agents.tools_as_text import with_tools_told
from agent_server.agents.turn_ends import first_end
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolSchema


class ChatTemplate:
    """The form of one model's conversations. Safe to share between threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop_token_ids: Sequence[int],
        tool_calls: ToolCallFormat = OUR_FORMATS[DEFAULT_FORMAT],
    ) -> None:
        self._tokenizer = tokenizer
        self.tool_calls = tool_calls
        """Format in which the model writes tool calls."""
        self.traits = learn_traits(tokenizer, stop_token_ids)
        self._renderer = Renderer(tokenizer, self.traits.form)
        self._controls = self._frame = ControlTokens(())  # the stand-ins spell none
        self.stop_token_ids = tuple(self.traits.ends.stops.values())
        """Tokens each of which ends a response."""
        self.end_token_id = self._behind_answer([FROM_TOOL], ())[0]
        """Token with which the template ends the assistant's turn before a tool speaks."""
        self._controls, self._frame = self._find_control_tokens()

    @classmethod
    def load(
        cls,
        model: Path,
        stop_tokens: Sequence[str] = (),
        tool_calls: str = "",
        formats: Mapping[str, ToolCallFormat] = OUR_FORMATS,
    ) -> "ChatTemplate":
        """The chat template in the model directory. Raises `InvalidMessage` and `LaunchError`.

        `stop_tokens` end a response beside those that the model's own files name. `tool_calls` is
        the name of one of the `formats`; if it is empty, the template's text decides.
        """
        tokenizer = Tokenizer.load(model)
        chosen = choose_format(formats, tool_calls, tokenizer.chat_template)
        stops = find_stop_tokens(tokenizer, model, stop_tokens)
        return cls(tokenizer, stops, formats[chosen])

    def prompt(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema] = ()
    ) -> list[int]:
        """The first prompt, ready for the assistant to continue. Raises `InvalidMessage`."""
        return self._encode(self._render(messages, tools))

    def observation(
        self, messages: Sequence[ChatMessage], *, after: int, tools: Sequence[ToolSchema] = ()
    ) -> list[int]:
        """The tokens between the stop token `after`, which ended a response, and the next response:
        first the template's own end token, if another was sampled."""
        end, text = self._behind_answer(messages, tools)
        return [*([] if after == end else [end]), *self._behind(end, pieces(text))]

    def rewritten(
        self,
        history: Conversation,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema] = (),
    ) -> list[int] | None:
        """The next prompt where the observation `messages` makes the template write the `history`
        anew; None where `observation` goes on from it."""
        roles = {message.role for message in messages}
        rewriting = {self.traits.rewriting.get((role, bool(tools))) for role in roles}
        if not rewriting & {Rewriting.REASONING, Rewriting.HISTORY}:
            return None
        # Most templates take what was sampled as it is, some only with its calls apart, and some
        # not at all: they go on without rewriting.
        for past in (history.as_text(), history.apart(self.tool_calls, tools)):
            try:
                if Rewriting.HISTORY not in rewriting and self._shows(
                    past, messages, since=history.prompted
                ):
                    return None
                return self._encode(self._render([*past, *messages], tools))
            except InvalidMessage:
                continue
        return None

    def text(self, response: Sequence[int]) -> str:
        """A response as text, without the stop token that ended it."""
        ended = len(response) > 0 and response[-1] in self.stop_token_ids
        return self._tokenizer.decode(response[:-1] if ended else response)

    def spelling(self) -> Callable[[int], str]:
        """Tells the text that each token of a response completes, one after the other."""
        return self._tokenizer.spelling()

    def spelt(self, token: int) -> str:
        """The text of one token, a stop token included."""
        return self._tokenizer.spelt(token)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with none put around them; a token that it spells is that one."""
        return self._tokenizer.encode(text)

    def _encode(self, marked: str) -> list[int]:
        first, *rest = pieces(marked)
        return [*self._tokenizer.encode(first), *self._behind(self.end_token_id, rest)]

    def _behind(self, token: int, texts: Sequence[str]) -> list[int]:
        encode = self._tokenizer.encode_behind
        return [each for text in texts for each in encode(token, text)]

    def _shows(
        self, past: Sequence[ChatMessage], messages: Sequence[ChatMessage], *, since: int
    ) -> bool:
        """Whether all that the assistant said after message `since` still stands before
        `messages`."""
        # Others may repeat what the assistant said, so here they say something else.
        conversation = [
            said
            if said.role == PLAIN_ANSWER.role
            else msgspec.structs.replace(said, content=f"{QUESTION.content} {index}")
            for index, said in enumerate(numbered([*past, *messages]))
        ]
        sampled = [said for said in past[since:] if said.role == PLAIN_ANSWER.role]
        parts = [part for said in sampled for part in (said.reasoning, said.content)]
        return _in_order(parts, self._renderer.render(conversation))

    def _behind_answer(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]
    ) -> tuple[int, str]:
        """The token that ends the assistant's turn, and all that the template puts behind it."""
        plain = [self._plain(message) for message in numbered(messages)]
        whole = self._after_stand_in(plain, self._schemas(tools))
        behind = whole.partition(ANSWER)[2]
        ends = self.traits.ends.in_history
        end = first_end(behind, ends)
        if end is None:
            roles = ", ".join(message.role for message in messages)
            raise InvalidMessage(
                f"the chat template of {self._tokenizer.name} puts no end token between an answer "
                f"and messages of the roles {roles}",
                fix="let the environment speak as a tool",
            )
        return ends[end], behind.partition(end)[2]

    def _after_stand_in(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> str:
        """The text of a conversation that ends with these messages, behind an answer that they may
        follow."""
        *others, last = answers(self.traits.form, messages)
        for answer in others:
            try:
                return self._renderer.render([QUESTION, answer, *messages], tools)
            except InvalidMessage:
                continue  # the next one asks less of the template
        return self._renderer.render([QUESTION, last, *messages], tools)

    def _find_control_tokens(self) -> tuple[ControlTokens, ControlTokens]:
        """Those that nobody but the template and the policy writes: special tokens, stop tokens,
        and all that the template itself puts around messages; and of these the last alone, which
        the policy writes neither."""
        written = self._renderer.render([QUESTION]) + self._behind_answer([FROM_TOOL], ())[1]
        added = self._tokenizer.added_tokens
        frame = {*self.traits.ends.in_history, *(t.content for t in added if t.content in written)}
        special = {token.content for token in added if token.special}
        reasoning = {text for text in frame if any(text in mark for mark in REASONING_MARKS)}
        return ControlTokens(frame | special), ControlTokens(frame - reasoning)

    def _render(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> str:
        """The text of the conversation, marked where a message spells a control token."""
        plain = [self._plain(self._with_calls_written(message)) for message in messages]
        if tools and not self.traits.tells_of_tools:
            plain = with_tools_told(plain, [self._plain_schema(t) for t in tools], self.tool_calls)
        return self._renderer.render(numbered(plain), self._schemas(tools))

    def _plain(self, message: ChatMessage) -> ChatMessage:
        # The assistant's calls and reasoning may be control tokens, but it begins no message.
        cut = self._frame.cut if message.role == PLAIN_ANSWER.role else self._controls.cut
        return msgspec.structs.replace(
            message, content=cut(message.content), name=cut(message.name)
        )

    def _with_calls_written(self, message: ChatMessage) -> ChatMessage:
        """The message, with its calls in the text if the template leaves them out."""
        if not message.tool_calls or self.traits.form.takes_calls:
            return message
        content = message.content + self.tool_calls.render(message.tool_calls)
        return msgspec.structs.replace(message, content=content, tool_calls=())

    def _schemas(self, tools: Sequence[ToolSchema]) -> list[ToolSchema]:
        """The schemas that the template itself is given."""
        return [self._plain_schema(tool) for tool in tools] if self.traits.tells_of_tools else []

    def _plain_schema(self, tool: ToolSchema) -> ToolSchema:
        return ToolSchema(**self._controls.cut_within(msgspec.structs.asdict(tool)))


def _in_order(parts: Iterable[str], text: str) -> bool:
    """Whether the parts, without the blanks around them, stand in the text one after the other."""
    at = 0
    for part in map(str.strip, parts):
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True
