"""The door of the proxy: its port, on an event loop of its own.

- Responses are asked for and given here; all other routes are Flask's, in threads.
- Who may call what, Flask's declarations say. Whoever is refused is answered by Flask, and its body
  is left unread.
- With TLS, connections come in by `entrance`.
- The bodies under way have so much memory and no more.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
from flask import Flask

from llm_servers.proxy.asked import read_asked
from llm_servers.proxy.caller import CallerConnection, CallerHead, CallerRequest
from llm_servers.proxy.entrance import Arrival, TLSEntrance
from llm_servers.proxy.flask_app import ask_flask
from llm_servers.proxy.relay import LLMRelay
from rollyard import codec
from rollyard.errors import RollyardError, Unavailable
from rollyard.messages import Failure
from serving.access import WRONG_TOKENS
from serving.admission import Admission, admission_to
from serving.bind import Bind
from serving.crowd import Crowd
from serving.lanes import MAX_BYTES_OF_TURNS, Lane
from serving.room import MAX_FREE_BYTES
from serving.tls import ServerTLS
from serving.wrong_tokens import WrongTokens

BACKLOG = 4096
"""Hundreds of agent servers may connect at once."""
LEAVING_SECONDS = 5.0
"""Time for requests under way, once the proxy is told to end."""
_FLASK_THREADS = 8
_JSON = f"Content-Type: {codec.JSON}\r\n"
_RETRY = "Retry-After: 1\r\n"

log = structlog.get_logger()


class ProxyDoor:
    """Owns the connections of all callers. Used by the event loop alone."""

    def __init__(self, app: Flask, relay: LLMRelay, bind: Bind, connections: int) -> None:
        self._app = app
        self._relay = relay
        self._bind = bind
        self._admit = admission_to(app)
        self._wrong: WrongTokens = app.extensions[WRONG_TOKENS]
        self._tls = None if bind.tls is None else ServerTLS(bind.tls)
        self._crowd: Crowd[CallerConnection | Arrival] = Crowd(connections)
        self._open: set[CallerConnection] = set()
        self._room = MAX_BYTES_OF_TURNS
        self._threads = ThreadPoolExecutor(_FLASK_THREADS, thread_name_prefix="flask")

    async def serve(self, told_to_end: asyncio.Event) -> None:
        """Listen until it is told to end. Raises `OSError` if it cannot."""
        loop = asyncio.get_running_loop()
        stop_listening = await self._listen(loop)
        await told_to_end.wait()
        stop_listening()
        for caller in tuple(self._open):
            caller.leave_off()
        until = loop.time() + LEAVING_SECONDS
        while (tasks := [caller.task for caller in self._open if caller.task]) and (
            left := until - loop.time()
        ) > 0:
            await asyncio.wait(tasks, timeout=left)
        for caller in tuple(self._open):
            caller.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Begin to accept connections. Returns what ends that. Raises `OSError`."""
        host, port = self._bind.host, self._bind.port
        make = partial(CallerConnection, self)
        if self._tls is None:
            return (await loop.create_server(make, host, port, backlog=BACKLOG)).close
        entrance = TLSEntrance(self._tls, make, self._let_in, self._crowd.leave)
        entrance.listen(host, port, BACKLOG)
        return entrance.close

    def enter(self, caller: CallerConnection) -> bool:
        if not self._let_in(caller):
            return False
        self._open.add(caller)
        return True

    def _let_in(self, newcomer: CallerConnection | Arrival) -> bool:
        surplus = self._crowd.surplus(newcomer)
        if surplus is newcomer:
            return False
        if surplus is not None:
            surplus.close()
        self._crowd.enter(newcomer)
        return True

    def leave(self, caller: CallerConnection) -> None:
        if caller in self._open:
            self._open.remove(caller)
            self._crowd.leave(caller)

    def body_bytes(self, head: CallerHead) -> int | None:
        admission = self._admission(head)
        wanted = head.length if head.length <= admission.max_bytes else 0
        if wanted > MAX_FREE_BYTES:
            if wanted > self._room:
                return None
            self._room -= wanted
        return wanted

    def free(self, body_bytes: int) -> None:
        if body_bytes > MAX_FREE_BYTES:
            self._room += body_bytes

    async def answer(self, request: CallerRequest, caller: CallerConnection) -> None:
        self._crowd.work(caller)
        try:
            await self._answer(request, caller)
        except RollyardError as error:
            caller.send(error.status, _JSON + _RETRY, _told(error))
        except Exception as error:
            log.exception("request_failed", path=request.head.target, exc_info=error)
            broken = RollyardError(f"{type(error).__name__} in the LLM proxy", fix="see its log")
            caller.send(broken.status, _JSON, _told(broken))
        finally:
            caller.answered = True
            if caller in self._open:
                self._crowd.wait(caller)

    async def _answer(self, request: CallerRequest, caller: CallerConnection) -> None:
        if self._is_for_llm(request):
            await self._relay.post(read_asked(request.head.path, request.body), caller)
            return
        ask = partial(ask_flask, self._app, self._bind.port, request)
        reply = await caller.loop.run_in_executor(self._threads, ask)
        caller.send(reply.status, reply.fields, reply.content)

    def _is_for_llm(self, request: CallerRequest) -> bool:
        """Whether it asks for a response, and its caller may: else Flask refuses it."""
        head = request.head
        if self._admission(head).lane is not Lane.TURNS or len(request.body) < head.length:
            return False
        try:
            self._wrong.check(request.peer)
        except Unavailable:
            return False
        return True

    def _admission(self, head: CallerHead) -> Admission:
        return self._admit(head.method, head.path, head.fields.get("authorization", ""))


def _told(error: RollyardError) -> bytes:
    return codec.encode_json(Failure(code=error.code, message=error.message, fix=error.fix))
