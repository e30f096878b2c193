"""Whatever bytes come as a message: it is read, or refused as the caller's mistake."""

import contextlib

import msgspec
from flask import Flask, Response
from hypothesis import given, settings
from hypothesis import strategies as st

from rollyard import codec, messages
from rollyard.messages.base import Message
from serving.api import new_app, reply
from tests.serving_threads import read

KINDS = [
    kind
    for kind in vars(messages).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


def fields_of(kind: type[Message]) -> st.SearchStrategy[dict[str, object]]:
    """Bodies with the right names and any values."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(kind.__struct_fields__, VALUES))


def app_of(kind: type[Message]) -> Flask:
    app = new_app(kind.__name__)

    @app.post("/")
    def take() -> Response:
        read(kind)
        return reply("taken")

    return app


CLIENTS = {kind: app_of(kind).test_client() for kind in KINDS}


@given(st.data())
@settings(max_examples=600, deadline=None)
def test_any_body_is_read_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    body = data.draw(st.one_of(VALUES, fields_of(kind), st.binary(max_size=64)))
    mimetype = data.draw(st.sampled_from([codec.JSON, codec.MSGPACK]))
    sent = body if isinstance(body, bytes) else b""
    if not isinstance(body, bytes):
        with contextlib.suppress(UnicodeEncodeError):  # half a surrogate pair is no message
            encoder = msgspec.json if mimetype == codec.JSON else msgspec.msgpack
            sent = encoder.encode(body)
    answer = CLIENTS[kind].post("/", data=sent, content_type=mimetype)
    assert answer.status_code in (200, 400), (kind, sent, answer.text)


def test_every_message_that_crosses_a_wire_is_tried() -> None:
    assert len(KINDS) > 25
