"""The routes of the gateway: a session by its key, and a dialect by its path.

Every error is told in the dialect of its path. Clients' libraries ask again where an error looks
passing; they are told not to, but for one of too many requests at once.
"""

from collections.abc import Callable, Mapping

import msgspec
import structlog

from agent_server.gateway.dialects.chat_completions import ChatCompletions
from agent_server.gateway.dialects.messages import AnthropicMessages
from agent_server.gateway.dialects.protocol import Asked, Dialect
from agent_server.gateway.dialects.responses import OpenAIResponses
from agent_server.gateway.exchange import ContextExceeded, TooManyRequests
from agent_server.gateway.session import GatewaySession
from agent_server.gateway.telling import Telling, WaitingClient
from rollyard import codec
from rollyard.errors import NotFound, RollyardError
from serving.bodies import MAX_PROMPTS_BYTES

MAX_BODY_BYTES = MAX_PROMPTS_BYTES
"""Maximum size of a request, which is a whole conversation."""

log = structlog.get_logger()

EVENT_STREAM = "text/event-stream"
_OPENAI = ChatCompletions()
_ANTHROPIC = AnthropicMessages()
_DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": _OPENAI,
    "/v1/responses": OpenAIResponses(),
    "/v1/messages": _ANTHROPIC,
}
_COUNT = "/v1/messages/count_tokens"
_MODELS = "/v1/models"
_MODEL = {"id": "policy", "object": "model", "created": 0, "owned_by": "rollyard"}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one request."""

    status: int
    body: bytes
    media_type: str = codec.JSON
    may_retry: bool = False
    """True if the same request may succeed later."""


class GatewayRoutes:
    def __init__(self, session: Callable[[str], GatewaySession]) -> None:
        self._session = session

    def get(self, path: str, key: str) -> Reply:
        """The answer to a request without a body."""

        def models() -> Reply:
            self._session(key)
            if path == _MODELS:
                return Reply(
                    status=200, body=codec.encode_json({"object": "list", "data": [_MODEL]})
                )
            if path.startswith(f"{_MODELS}/"):
                return Reply(status=200, body=codec.encode_json(_MODEL))
            raise _unknown(path)

        return self._or_error(path, models)

    def post(self, path: str, key: str, sent: bytes, caller: WaitingClient) -> Reply:
        """The answer to a request, or what is left of an answer of which the caller was sent the
        beginning."""

        def respond() -> Reply:
            session = self._session(key)
            if path == _COUNT:
                counted = {"input_tokens": session.count(_ANTHROPIC.counted(sent))}
                return Reply(status=200, body=codec.encode_json(counted))
            dialect = _DIALECTS.get(path)
            if dialect is None:
                raise _unknown(path)
            asked = dialect.read(sent)
            if asked.streams:
                return self._stream(session, dialect, asked, caller)
            answer = session.respond(asked.inquiry, caller.gone)
            return Reply(status=200, body=dialect.answer(asked, answer))

        return self._or_error(path, respond)

    def _stream(
        self, session: GatewaySession, dialect: Dialect, asked: Asked, caller: WaitingClient
    ) -> Reply:
        """The end of an answer in events, or all of it."""
        telling = Telling(dialect.events(asked), caller)
        try:
            with caller.reminded(telling.keep_alive):
                answer = session.respond(asked.inquiry, caller.gone, telling)
            body = telling.end(answer)
        except Exception as error:
            if telling.withdraw():
                raise
            ours = _ours(error, "stream")
            body = telling.fail(ours.status, str(ours), _code(ours))
        return Reply(status=200, body=body, media_type=EVENT_STREAM)

    def refusal(self, path: str, error: RollyardError) -> Reply:
        """The error in the dialect of this path."""
        dialect = _ANTHROPIC if path == _COUNT else _DIALECTS.get(path, _OPENAI)
        return Reply(
            status=error.status,
            body=dialect.error(error.status, str(error), _code(error)),
            may_retry=isinstance(error, TooManyRequests),
        )

    def _or_error(self, path: str, respond: Callable[[], Reply]) -> Reply:
        try:
            return respond()
        except Exception as error:
            return self.refusal(path, _ours(error, path))


def key_of(headers: Mapping[str, str]) -> str:
    """The key that a request shows, in either of the two usual ways."""
    scheme, _, shown = headers.get("authorization", "").partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _ours(error: Exception, path: str) -> RollyardError:
    """The error as its client is told it."""
    if isinstance(error, RollyardError):
        return error
    log.exception("request_failed", path=path, exc_info=error)
    return RollyardError(f"{type(error).__name__} in the gateway", fix="see its log")


def _code(error: RollyardError) -> str:
    return "context_length_exceeded" if isinstance(error, ContextExceeded) else error.code


def _unknown(path: str) -> NotFound:
    known = ", ".join([*_DIALECTS, _COUNT, _MODELS])
    return NotFound(f"there is nothing at {path[:200]!r}", fix=f"use one of: {known}")
