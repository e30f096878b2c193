"""The routes of the proxy: those on which responses are asked for and ended, and no other of an LLM
server's. Its control routes are nobody's but the control service's of this node."""

from typing import Annotated, Any

import msgspec
from flask import Flask, Response

from llm_servers import contract
from llm_servers.dialects import prorl, vllm_completions
from llm_servers.proxy.proxy import LLMProxy
from rollyard.errors import LLMUnavailable
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import EVERYONE, allow
from serving.bodies import MAX_BODY_BYTES
from serving.declaration import OnWire
from serving.lanes import Lane
from serving.routes import Routes

CHAT_COMPLETIONS = "/v1/chat/completions"


class Aborts(msgspec.Struct, frozen=True):
    """Names of requests to end."""

    request_ids: list[str]


def create_proxy_app(proxy: LLMProxy, tokens: Tokens = NO_TOKENS) -> Flask:
    routes = Routes("llm_proxy", tokens)
    _add_generation(routes)
    _add_ends(routes, proxy)
    _add_looks(routes, proxy)
    return routes.app


def _add_generation(routes: Routes) -> None:
    def passed_on(path: str, name: str, takes: Any, gives: Any) -> None:
        def generate(sent: bytes) -> Response:
            # The door answers these itself; what comes here it has refused.
            raise LLMUnavailable("too many wrong tokens came from this address")

        generate.__name__ = name
        generate.__doc__ = "A response of one of this node's LLM servers, as it gives it."
        generate.__annotations__ = {
            "sent": Annotated[bytes, OnWire(takes)],
            "return": Annotated[Response, OnWire(gives)],
        }
        routes.post(
            path,
            allow(Role.WORKER),
            raises=(LLMUnavailable,),
            max_bytes=MAX_BODY_BYTES,
            lane=Lane.TURNS,
        )(generate)

    passed_on(
        contract.GENERATE, "generate_tokens", contract.GenerateRequest, contract.GenerateAnswer
    )
    passed_on(
        vllm_completions.COMPLETIONS,
        "complete",
        vllm_completions.CompletionRequest,
        vllm_completions.CompletionAnswer,
    )
    passed_on(prorl.PRORL_GENERATE, "generate", prorl.ProRLRequest, prorl.ProRLAnswer)
    passed_on(CHAT_COMPLETIONS, "chat", dict[str, Any], dict[str, Any])


def _add_ends(routes: Routes, proxy: LLMProxy) -> None:
    @routes.post(contract.ABORT, allow(Role.WORKER), raises=(LLMUnavailable,))
    def abort_requests(aborts: Aborts) -> dict[str, str]:
        """End those of these requests that are under way here, with the tokens that they have."""
        proxy.abort(aborts.request_ids)
        return {}

    @routes.post(vllm_completions.ABORT, allow(Role.WORKER), raises=(LLMUnavailable,))
    def abort_completions(aborts: Aborts) -> dict[str, str]:
        """End those of these completions that are under way here."""
        proxy.abort(aborts.request_ids)
        return {}


def _add_looks(routes: Routes, proxy: LLMProxy) -> None:
    @routes.get("/health", EVERYONE, raises=(LLMUnavailable,))
    def health() -> str:
        """Whether a request would be taken now."""
        proxy.check()
        return "ok\n"

    @routes.get("/v1/models", allow(Role.WORKER, Role.READ), raises=(LLMUnavailable,))
    def models() -> Annotated[Response, OnWire(dict[str, Any])]:
        """The models of the LLM servers, as one of them names them."""
        return proxy.models()

    @routes.get("/metrics", allow(Role.WORKER, Role.READ))
    def metrics() -> str:
        """Metrics of the LLM servers, and of the proxy, for Prometheus."""
        return proxy.metrics()
