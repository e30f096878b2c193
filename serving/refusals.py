"""JSON answers to requests that never reach the app: they are invalid, late, or too many."""

import re
from http import HTTPStatus

import structlog
from gunicorn.http.errors import (
    ExpectationFailed,
    LimitRequestHeaders,
    LimitRequestLine,
    ParseException,
    UnsupportedTransferCoding,
)

from rollyard import codec
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.messages import Failure

log = structlog.get_logger()

_STATUSES = {
    ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
    LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
}
_CODES = {
    HTTPStatus.BAD_REQUEST: InvalidMessage.__name__,
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable.__name__,
}


def refusal(error: Exception) -> bytes:
    """The answer to a request that could not be read. An unexpected error is logged."""
    if isinstance(error, ParseException):
        status = _STATUSES.get(type(error), HTTPStatus.BAD_REQUEST)
        return say_refusal(status, f"not a valid HTTP request: {error}")
    log.exception("request_failed", exc_info=error)
    return say_refusal(
        HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__, "see the service's log"
    )


def say_refusal(status: HTTPStatus, message: str, fix: str = "") -> bytes:
    """An answer after which the connection is closed."""
    code = _CODES.get(status, re.sub(r"\W", "", status.phrase))
    body = codec.encode_json(Failure(code=code, message=message, fix=fix))
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Connection: close",
        f"Content-Type: {codec.JSON}",
        f"Content-Length: {len(body)}",
    ]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        head.append("Retry-After: 1")
    return "\r\n".join([*head, "", ""]).encode() + body


LATE = say_refusal(HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time")
PLAIN = say_refusal(
    HTTPStatus.BAD_REQUEST,
    "this port takes requests with TLS alone",
    "call it by a URL that begins with https://",
)
TRUNCATED = say_refusal(HTTPStatus.BAD_REQUEST, "the body ended before its length")
NO_ROOM = say_refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too many large bodies are on their way",
    "send it again later, or less at once",
)
