"""Thin Flask: messages in, messages out, errors as `{"code", "message", "fix"}`.

A body is msgpack when its Content-Type says so and JSON otherwise; a reply is msgpack when the
caller accepts it and JSON otherwise. `serving.routes` declares routes.
"""

from http import HTTPStatus
from typing import Any, TypeVar

import structlog
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from rollyard import codec
from rollyard.errors import NotFound, RollyardError, TooLarge, Unauthorized, Unavailable
from rollyard.messages import Failure
from rollyard.tokens import NO_TOKENS, Tokens
from serving.access import guard
from serving.bodies import MAX_BODY_BYTES

T = TypeVar("T")

log = structlog.get_logger()


def new_app(name: str, tokens: Tokens = NO_TOKENS) -> Flask:
    """A Flask app for the bearers of `tokens`, or for everyone if there are none. It answers
    every failure with an error message, never with HTML."""
    app = Flask(name, static_folder=None)
    app.url_map.merge_slashes = False  # else `//x` is answered with a redirect
    guard(app, tokens)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES

    @app.errorhandler(RollyardError)
    def refused(error: RollyardError) -> Response:
        refusal = error_reply(error.status, error.code, error.message, error.fix)
        if isinstance(error, Unavailable):
            refusal.headers["Retry-After"] = "1"
        if isinstance(error, Unauthorized):
            refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    @app.errorhandler(HTTPException)
    def not_routed(error: HTTPException) -> Response:
        status = error.code or 500
        code, message = error.name.replace(" ", ""), error.description or error.name
        refusal = error_reply(status, code, message, "")
        if isinstance(error, MethodNotAllowed):
            refusal.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
        return refusal

    @app.errorhandler(HTTPStatus.NOT_FOUND)
    def not_found(_: HTTPException) -> Response:
        return refused(NotFound(f"{name} has no route {request.method} {request.path}"))

    @app.errorhandler(RequestEntityTooLarge)
    def too_large(_: RequestEntityTooLarge) -> Response:
        most = f"{(request.max_content_length or 0) // 2**20} MiB"
        return refused(
            TooLarge(
                f"the body is larger than the {most} that {name} takes",
                fix="send less at once: a shorter trajectory, a smaller row",
            )
        )

    @app.errorhandler(Exception)
    def broken(error: Exception) -> Response:
        log.exception("request_failed", path=request.path, exc_info=error)
        return error_reply(
            500, "InternalError", f"{type(error).__name__} in {name}", f"see the log of {name}"
        )

    return app


def is_packed() -> bool:
    """Whether the request's body is msgpack."""
    return request.mimetype == codec.MSGPACK


def unpack(sent: bytearray, kind: Any, reads: type[T]) -> T:
    """The body `sent`, which is a `kind` on the wire, as a message of type `reads`, which may leave
    parts of it packed. Raises `InvalidMessage`."""
    if kind is reads:
        return codec.decode(sent, reads) if is_packed() else codec.decode_json(sent, reads)
    # Packed parts are views of these bytes, and `sent` is cleared once it is read.
    packed = bytes(sent) if is_packed() else codec.encode(codec.decode_json(sent, kind))
    return codec.decode(packed, reads)


def reply(message: object, status: int = 200, packed: Any = None) -> Response:
    """`message` as msgpack or JSON, whichever the caller accepts. `packed` is its type on the wire
    if parts of it are packed already."""
    if request.accept_mimetypes.best_match([codec.JSON, codec.MSGPACK]) == codec.MSGPACK:
        return Response(codec.encode(message), status, mimetype=codec.MSGPACK)
    if packed is not None:
        message = codec.decode(codec.encode(message), packed)
    return Response(codec.encode_json(message), status, mimetype=codec.JSON)


def error_reply(status: int, code: str, message: str, fix: str) -> Response:
    return reply(Failure(code=code, message=message, fix=fix), status)
