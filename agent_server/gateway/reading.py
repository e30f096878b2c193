"""Responses as their clients are told them: what was sampled, as reasoning, text and calls."""

from collections.abc import Sequence

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tool_calls.parser import CallIds, ResponseParser
from agent_server.agents.tool_calls.reasoning import opens_reasoning, split_reasoning
from agent_server.environments.protocol import Response
from agent_server.gateway.exchange import Inquiry, ToldResponse
from agent_server.gateway.unfolding import Unfolding
from llm_servers.generation import Generation
from rollyard.messages import ChatMessage

# A tag that opens reasoning, in the tokens of any model: it may have one for each letter.
_TAIL_TOKENS = 16


class ResponseReader:
    """Reads the responses of one session, and owns the ids of their calls."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._ids = CallIds()

    def unfolding(self, inquiry: Inquiry, prompt: Sequence[int]) -> Unfolding:
        """The response to this prompt, before its first token."""
        marks = self._template.tool_calls.marks if inquiry.tools and inquiry.calls else ()
        return Unfolding(self._template, marks, opened=self._opened(prompt))

    def read(
        self, inquiry: Inquiry, prompt: Sequence[int], generation: Generation
    ) -> tuple[ChatMessage, ToldResponse]:
        """The response as text, all of it, and as the client is told it."""
        text = self._template.text
        opened = self._opened(prompt)
        tools = inquiry.tools if inquiry.calls else ()
        parser = ResponseParser(self._template.tool_calls, tools, self._ids)
        response = parser.parse(text(generation.token_ids), in_reasoning=opened)
        message = ChatMessage(
            role="assistant",
            content=response.text,
            tool_calls=response.calls,
            reasoning=response.reasoning,
        )
        return message, self._choice(inquiry, generation, _readable(response, opened=opened))

    def _opened(self, prompt: Sequence[int]) -> bool:
        return opens_reasoning(self._template.text(prompt[-_TAIL_TOKENS:]))

    def _choice(self, inquiry: Inquiry, generation: Generation, response: Response) -> ToldResponse:
        tokens = generation.token_ids if inquiry.logprobs else ()
        return ToldResponse(
            content=response.content,
            reasoning=response.reasoning,
            calls=response.calls,
            finish_reason=generation.finish_reason,
            token_ids=generation.token_ids,
            tokens=tuple(self._template.spelt(token) for token in tokens),
            logprobs=generation.logprobs,
        )


def _readable(response: Response, *, opened: bool) -> Response:
    """The response; as plain text if a call in it cannot be read, so that the client sees it."""
    if not response.malformed:
        return response
    content = split_reasoning(response.text, opened=opened)[1].strip()
    return Response(text=response.text, content=content, reasoning=response.reasoning)
