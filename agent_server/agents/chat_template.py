"""A model's chat template as token ids: the first prompt, and the observations after responses.

- An observation is rendered behind a stand-in conversation and cut off after the assistant's end
  token, so that the tokens of the real conversation are never rendered again. That is right only
  for a template that never rewrites what came before; any other is refused when it is loaded.
- A response may end with any stop token. The next observation always follows the one with which
  the template ends a turn, which is added if another was sampled.
- Messages are plain text: only the template writes control tokens. An assistant's message alone is
  taken as the policy would sample it, tool calls and all.
"""

from collections.abc import Sequence
from pathlib import Path

from agent_server.agents.control_tokens import ControlTokens, pieces
from agent_server.agents.stop_tokens import find_stop_tokens
from agent_server.agents.tokenizer import Tokenizer
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage

_QUESTION = ChatMessage(role="user", content="q")
_ANSWER = ChatMessage(role="assistant", content="a")
_OBSERVATION = ChatMessage(role="tool", content="observed")


class ChatTemplate:
    """The form of one model's conversations. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, stop_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.stop_token_ids = tuple(stop_token_ids)
        """Tokens each of which ends a response."""
        self._controls = ControlTokens(())  # the stand-ins spell none
        self.end_token_id = self._find_end_token()
        """Token with which the template ends the assistant's turn."""
        self._end = tokenizer.decode([self.end_token_id])
        self._refuse_rewriting()
        self._controls = self._find_control_tokens()

    @classmethod
    def load(cls, model: Path, stop_tokens: Sequence[str] = ()) -> "ChatTemplate":
        """The chat template in the model directory. Raises `InvalidMessage`.

        `stop_tokens` end a response beside those that the model's own files name.
        """
        tokenizer = Tokenizer.load(model)
        return cls(tokenizer, find_stop_tokens(tokenizer, model, stop_tokens))

    def prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The first prompt, ready for the assistant to continue."""
        first, *rest = pieces(self._render(messages))
        return [*self._tokenizer.encode(first), *self._behind_end(rest)]

    def observation(self, messages: Sequence[ChatMessage], *, after: int) -> list[int]:
        """The tokens between the stop token `after`, which ended a response, and the next response:
        first the template's own end token, if another was sampled."""
        end = [] if after == self.end_token_id else [self.end_token_id]
        return [*end, *self._behind_end(pieces(self._after_answer(messages)))]

    def text(self, response: Sequence[int]) -> str:
        """A response as text, without the stop token that ended it."""
        ended = len(response) > 0 and response[-1] in self.stop_token_ids
        return self._tokenizer.decode(response[:-1] if ended else response)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with none put around them; a token that it spells is that one."""
        return self._tokenizer.encode(text)

    def _behind_end(self, texts: Sequence[str]) -> list[int]:
        encode = self._tokenizer.encode_behind
        return [token for text in texts for token in encode(self.end_token_id, text)]

    def _find_end_token(self) -> int:
        before = self._render([_QUESTION]) + _ANSWER.content
        whole = self._render([_QUESTION, _ANSWER, _OBSERVATION])
        if not whole.startswith(before):
            raise self._rewrites("an answer in a conversation is not what was sampled")
        ends = {self._tokenizer.decode([token]): token for token in self.stop_token_ids}
        found = [end for end in ends if end and whole.startswith(before + end)]
        if not found:
            known = ", ".join(map(repr, ends))
            raise InvalidMessage(
                f"the chat template of {self._tokenizer.name} puts no end token behind an answer: "
                f"of those, {known} are known",
                fix="name the one that it puts there with --stop-token",
            )
        return ends[max(found, key=len)]

    def _find_control_tokens(self) -> ControlTokens:
        """Special tokens, stop tokens, and all that the template itself puts around messages."""
        frame = self._render([_QUESTION, _ANSWER, _OBSERVATION])
        added = self._tokenizer.added_tokens
        return ControlTokens(
            [
                *(token.content for token in added if token.special or token.content in frame),
                *(self._tokenizer.decode([token]) for token in self.stop_token_ids),
            ]
        )

    def _refuse_rewriting(self) -> None:
        once = self._after_answer([_OBSERVATION])
        if _OBSERVATION.content not in once:
            raise InvalidMessage(
                f"the chat template of {self._tokenizer.name} leaves out what a tool says, so the "
                "policy would never see it",
                fix="use a template that writes messages of the role `tool`",
            )
        history = [_QUESTION, _ANSWER, _OBSERVATION, _ANSWER]
        twice = self._render([*history, _OBSERVATION])
        if not twice.endswith(_ANSWER.content + self._end + once):
            raise self._rewrites("an observation reads differently later in a conversation")
        if not twice.startswith(self._render(history[:3])):
            raise self._rewrites("an earlier turn changes when a later one is added")

    def _after_answer(self, messages: Sequence[ChatMessage]) -> str:
        before = self._render([_QUESTION]) + _ANSWER.content + self._end
        whole = self._render([_QUESTION, _ANSWER, *messages])
        if not whole.startswith(before):
            raise self._rewrites(f"an answer is not followed by the end token {self._end!r}")
        return whole.removeprefix(before)

    def _render(self, messages: Sequence[ChatMessage]) -> str:
        """The text of the conversation, marked where a message spells a control token."""
        return self._tokenizer.render([self._plain(message) for message in messages])

    def _plain(self, message: ChatMessage) -> ChatMessage:
        if message.role == _ANSWER.role:
            return message
        return ChatMessage(role=message.role, content=self._controls.cut(message.content))

    def _rewrites(self, how: str) -> InvalidMessage:
        return InvalidMessage(
            f"the chat template of {self._tokenizer.name} is not append-only: {how}",
            fix="use a template that only ever adds text, so that training sees the exact tokens "
            "that were sampled",
        )
