"""The residences of trajectories, and what is under way on each LLM server.

- A trajectory lives where its last request went, as long as it comes back within `IDLE_SECONDS`.
- A server that has gone has lost its caches: nothing lives there any more.
"""

import itertools
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection

import msgspec

from llm_servers.proxy.asked import AskedOfLLM
from llm_servers.proxy.choice import CachedPrefix, LoadOfLLM, choose_server

IDLE_SECONDS = 120.0
MAX_PROMPTS = 4096
"""Prompts whose server is remembered for the other members of their Groups."""


class Flight(msgspec.Struct, eq=False):
    """A request under way."""

    server: str
    tokens: int
    """Tokens of its prompt that the server has to compute, as far as can be told."""
    asked: AskedOfLLM


class _Residence(msgspec.Struct):
    server: str
    tokens: int
    last_seen: float


class Residences:
    """Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._homes: OrderedDict[str, _Residence] = OrderedDict()
        """The longest silent first."""
        self._prompts: OrderedDict[bytes, str] = OrderedDict()
        self._living: defaultdict[str, int] = defaultdict(int)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._running: defaultdict[str, int] = defaultdict(int)
        self._abortable: dict[str, Flight] = {}

    def begin(self, asked: AskedOfLLM, servers: Collection[str]) -> Flight:
        """Choose one of the `servers` for a request, which is under way from now on."""
        with self._lock:
            self._forget_silent()
            home = self._homes.get(asked.trajectory)
            cached = self._cached(asked, home)
            server = choose_server(
                {each: self._load(each, home) for each in servers}, asked.prompt_tokens, cached
            )
            known = cached.tokens if cached is not None and cached.server == server else 0
            flight = Flight(server, max(0, asked.prompt_tokens - known), asked)
            self._waiting[server] += flight.tokens
            self._running[server] += 1
            self._settle(asked, server)
            if asked.engine_id:
                self._abortable[asked.engine_id] = flight
            return flight

    def computed(self, flight: Flight) -> None:
        """Note that the response has begun: the prompt does not wait any more."""
        with self._lock:
            self._waiting[flight.server] -= flight.tokens
            flight.tokens = 0

    def end(self, flight: Flight) -> None:
        with self._lock:
            self._waiting[flight.server] -= flight.tokens
            self._running[flight.server] -= 1
            if self._abortable.get(flight.asked.engine_id) is flight:
                del self._abortable[flight.asked.engine_id]

    def leave(self, server: str) -> None:
        """Forget what lives at a server that has gone."""
        with self._lock:
            for name in [name for name, home in self._homes.items() if home.server == server]:
                del self._homes[name]
            self._living[server] = 0
            for prompt in [each for each, where in self._prompts.items() if where == server]:
                del self._prompts[prompt]

    def server_of(self, engine_id: str) -> str | None:
        """The server on which a request of this name is under way."""
        with self._lock:
            flight = self._abortable.get(engine_id)
            return None if flight is None else flight.server

    def running(self, server: str) -> int:
        """The number of requests under way."""
        with self._lock:
            return self._running[server]

    def load(self, server: str) -> LoadOfLLM:
        with self._lock:
            self._forget_silent()
            return self._load(server, None)

    def _load(self, server: str, home: _Residence | None) -> LoadOfLLM:
        itself = home is not None and home.server == server
        return LoadOfLLM(self._waiting[server], self._living[server] - itself)

    def _cached(self, asked: AskedOfLLM, home: _Residence | None) -> CachedPrefix | None:
        if home is not None:
            return CachedPrefix(home.server, min(home.tokens, asked.prompt_tokens))
        server = self._prompts.get(asked.prompt)
        return None if server is None else CachedPrefix(server, asked.prompt_tokens, at_home=False)

    def _settle(self, asked: AskedOfLLM, server: str) -> None:
        self._prompts[asked.prompt] = server
        self._prompts.move_to_end(asked.prompt)
        if len(self._prompts) > MAX_PROMPTS:
            self._prompts.popitem(last=False)
        if not asked.trajectory:
            return
        before = self._homes.pop(asked.trajectory, None)
        if before is not None:
            self._living[before.server] -= 1
        self._homes[asked.trajectory] = _Residence(server, asked.prompt_tokens, self._clock())
        self._living[server] += 1

    def _forget_silent(self) -> None:
        oldest = self._clock() - IDLE_SECONDS
        silent = itertools.takewhile(lambda one: one[1].last_seen < oldest, self._homes.items())
        for name, home in list(silent):
            del self._homes[name]
            self._living[home.server] -= 1
