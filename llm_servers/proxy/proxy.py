"""The proxy of one node: its LLM servers, behind one address."""

from collections.abc import Iterable, Sequence

import requests
from flask import Response

from llm_servers.contract import ABORT, REQUEST_PREFIX
from llm_servers.dialects import vllm_completions
from llm_servers.proxy.judgement import LLMPatience
from llm_servers.proxy.metrics import merged, own
from llm_servers.proxy.relay import LLMRelay
from llm_servers.proxy.residences import Residences
from llm_servers.proxy.watch import LLMWatch
from rollyard.errors import LLMUnavailable
from rollyard.http import DirectSession

_CALL_SECONDS = 5.0


class LLMProxy:
    """Owns the parts of the proxy."""

    def __init__(self, servers: Sequence[str], patience: LLMPatience) -> None:
        self._servers = tuple(servers)
        self._residences = Residences()
        self._watch = LLMWatch(servers, patience, self._residences.running, self._residences.leave)
        self.relay = LLMRelay(self._watch, self._residences)
        self._session = DirectSession()

    def start(self) -> None:
        """Begin to look at the servers; on the running event loop, requests are relayed."""
        self._watch.start(self.relay.look_around)

    def abort(self, engine_ids: Iterable[str]) -> None:
        """End requests that are under way here. Raises `LLMUnavailable`."""
        for engine_id in engine_ids:
            server = self._residences.server_of(engine_id)
            if server is None:
                continue
            ours = engine_id.startswith(REQUEST_PREFIX)
            path = ABORT if ours else vllm_completions.ABORT
            self._call("POST", server, path, {"request_ids": [engine_id]})

    def check(self) -> None:
        """Raise `LLMUnavailable` if no server takes requests."""
        if not self._watch.rotation():
            raise LLMUnavailable(
                f"none of these LLM servers is healthy: {' '.join(self._servers)}",
                fix="their logs say why",
            )

    def models(self) -> Response:
        self.check()
        answer = self._call("GET", self._watch.rotation()[0], "/v1/models")
        return Response(answer.content, answer.status_code, mimetype="application/json")

    def metrics(self) -> str:
        texts = {}
        for server in self._watch.rotation():
            try:
                texts[server] = self._call("GET", server, "/metrics").text
            except LLMUnavailable:  # its standing says so
                continue
        servers = self._watch.servers()
        loads = {server: self._residences.load(server) for server in servers}
        running = {server: self._residences.running(server) for server in servers}
        return merged(texts) + own(servers, loads, running)

    def close(self) -> None:
        self._watch.close()
        self.relay.close()
        self._session.close()

    def _call(self, method: str, server: str, path: str, body: object = None) -> requests.Response:
        try:
            return self._session.request(method, server + path, json=body, timeout=_CALL_SECONDS)
        except requests.RequestException as error:
            raise LLMUnavailable(f"no answer from the LLM server at {server}") from error
