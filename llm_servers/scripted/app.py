"""The scripted server over HTTP: the routes of the kind of server that it stands in for, vLLM's
control routes, and `POST /script/faults` to make it fail."""

import json
import select
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from llm_servers.contract import BASE, POLICY, GenerateRequest, SamplingParams
from llm_servers.scripted import faults
from llm_servers.scripted.adapters import ScriptedAdapters
from llm_servers.scripted.distribution import drawn_logprob
from llm_servers.scripted.engine import ScriptedEngine, ScriptedGeneration
from llm_servers.scripted.faults import Fault, FaultKind, Faults
from llm_servers.scripted.refusals import BadRequestError, ServerFailure, check
from llm_servers.scripted.routes import GenerateRoute, routes
from llm_servers.scripted.script import Script
from llm_servers.scripted.streams import stream_of
from rollyard.codec import learnt


def create_app(
    script: Script, engine: ScriptedEngine, max_model_len: int, kind: str = "vllm"
) -> Flask:
    """The app of a server of this `kind`, one of `routes.KINDS`."""
    app = Flask("scripted", static_folder=None)
    waiting = Faults()
    _answer_like_vllm(app)
    _add_faults(app, waiting)
    for route in routes(kind, script.vocabulary):
        _add_generate(app, route, script, engine, max_model_len)
        _add_abort(app, route, engine)
    _add_control(app, engine)
    if engine.adapters is not None:
        _add_adapters(app, engine.adapters)
    _add_watching(app, engine, max_model_len)
    return app


def _answer_like_vllm(app: Flask) -> None:
    @app.errorhandler(BadRequestError)
    def bad_request(error: BadRequestError) -> Response:
        return _error(400, "BadRequestError", str(error))

    @app.errorhandler(ServerFailure)
    def failure(error: ServerFailure) -> Response:
        return _error(500, "InternalServerError", str(error))

    @app.errorhandler(HTTPException)
    def not_routed(error: HTTPException) -> Response:
        return _json({"detail": error.name}, error.code or 500)


def _add_faults(app: Flask, waiting: Faults) -> None:
    @app.post("/script/faults")
    def set_fault() -> Response:
        try:
            waiting.set(msgspec.json.decode(request.get_data(), type=learnt(Fault)))
        except msgspec.MsgspecError as error:
            raise BadRequestError(str(error)) from error
        return _json({})

    @app.before_request
    def misbehave() -> Response | None:
        if request.path.startswith("/script/"):
            return None
        kind = waiting.take(request.path)
        if kind is FaultKind.ERROR_500:
            raise ServerFailure("told to fail")
        if kind is FaultKind.HANG:
            waiting.hang(request.path)
        request.environ["script.fault"] = kind
        return None

    @app.after_request
    def truncate(response: Response) -> Response:
        if request.environ.get("script.fault") is FaultKind.TRUNCATED_JSON:
            body = response.get_data()
            response.set_data(body[: len(body) // 2])
        return response


def _add_generate(
    app: Flask, route: GenerateRoute, script: Script, engine: ScriptedEngine, max_model_len: int
) -> None:
    vocabulary = script.vocabulary

    def ends(wanted: GenerateRequest, token_ids: list[int]) -> str:
        params = wanted.sampling_params
        stops = set(params.stop_token_ids or ())
        if not params.ignore_eos:
            stops |= vocabulary.ends
        room = max_model_len - len(wanted.token_ids)
        if token_ids[-1] in stops:
            return "stop"
        return "length" if len(token_ids) >= min(params.max_tokens or room, room) else ""

    def generate() -> Response:
        wanted = route.read(request.get_data())
        check(wanted, vocabulary_size=vocabulary.size, max_model_len=max_model_len)
        params = wanted.sampling_params
        adapted = engine.adapters is not None and wanted.model == POLICY
        scores = params.prompt_logprobs is not None
        scored = engine.score(wanted.token_ids, adapted=adapted) if scores else None
        caller: socket.socket | None = request.environ.get("gunicorn.socket")
        generation = ScriptedGeneration(
            route.engine_id.format(wanted.request_id or engine.draw_name()), [], [], []
        )
        drawn = engine.draw(
            generation,
            wanted.token_ids,
            adapted=adapted,
            response=_response(wanted, script, engine),
            ends=lambda token_ids: ends(wanted, token_ids),
            gone=lambda: caller is not None and _hung_up(caller),
        )
        if wanted.stream:
            events = stream_of(wanted, generation, drawn, vocabulary.size)
            return Response(events, mimetype="text/event-stream")
        for _ in drawn:
            pass
        fault = request.environ.get("script.fault")
        if fault is not FaultKind.RAW_LOGPROBS:
            shape = params if route.truncates else _untruncated(params)
            generation.logprobs = [
                drawn_logprob(logprob, vocabulary.size, shape) for logprob in generation.logprobs
            ]
        faults.spoil(fault, generation)
        return _json(msgspec.to_builtins(route.write(wanted, generation, scored)))

    app.post(route.path, endpoint=route.path)(generate)


def _untruncated(params: SamplingParams) -> SamplingParams:
    return msgspec.structs.replace(params, top_p=1.0, top_k=0, min_p=0.0, allowed_token_ids=None)


def _add_abort(app: Flask, route: GenerateRoute, engine: ScriptedEngine) -> None:
    def abort() -> Response:
        body = _body()
        if (begins := body.get("rid")) is not None:
            engine.abort(lambda request_id: request_id.startswith(begins))
        else:
            engine.abort(frozenset(body["request_ids"]).__contains__)
        return Response(status=200)

    if route.abort:
        app.post(route.abort, endpoint=route.abort)(abort)


def _add_control(app: Flask, engine: ScriptedEngine) -> None:
    @app.post("/pause")
    def pause() -> Response:
        if request.args.get("mode") != "keep":
            raise BadRequestError("the scripted server pauses with mode=keep only")
        engine.pause()
        return _json({"status": "paused"})

    @app.post("/resume")
    def resume() -> Response:
        engine.resume()
        return _json({"status": "resumed"})

    @app.post("/collective_rpc")
    def collective_rpc() -> Response:
        body = _body()
        if body.get("method") == "remove_lora" and engine.adapters is not None:
            engine.adapters.drop()
            return _json({"results": ["True"]})
        if body.get("method") != "reload_weights":
            raise BadRequestError("the scripted server knows no such method")
        engine.reload(Path(body["kwargs"]["weights_path"]))
        return _json({"results": [None]})

    @app.post("/reset_prefix_cache")
    def reset_prefix_cache() -> Response:
        return _json({"success": True})  # there is no cache to keep

    @app.post("/update_weight_version")
    def update_weight_version() -> Response:
        version = str(_body()["new_version"])
        engine.set_version(version)
        return _json({"success": True, "new_version": version})


def _add_adapters(app: Flask, adapters: ScriptedAdapters) -> None:
    @app.post("/v1/load_lora_adapter")
    def load_lora_adapter() -> Response:
        adapters.read(Path(_body()["lora_path"]))
        return Response("Success")

    @app.post("/v1/unload_lora_adapter")
    def unload_lora_adapter() -> Response:
        return Response("Success")


def _add_watching(app: Flask, engine: ScriptedEngine, max_model_len: int) -> None:
    @app.get("/health")
    def health() -> Response:
        return Response(status=503 if engine.broken else 200)

    @app.get("/v1/models")
    def models() -> Response:
        adapters = engine.adapters
        served = [
            {
                "id": BASE if adapters else POLICY,
                "object": "model",
                "root": str(engine.model),
                "max_model_len": max_model_len,
            }
        ]
        if adapters is not None:
            served.append(
                {"id": POLICY, "object": "model", "root": str(adapters.place), "parent": BASE}
            )
        return _json({"object": "list", "data": served})

    @app.get("/is_paused")
    def is_paused() -> Response:
        return _json({"is_paused": engine.paused})

    @app.get("/weight_info")
    def weight_info() -> Response:
        return _json({"weight_version": engine.version})

    @app.get("/metrics")
    def metrics() -> Response:
        lines = (
            f"vllm:num_requests_running {len(engine.running)}",
            f"vllm:generation_tokens_total {engine.tokens_generated}",
            "",
        )
        return Response("\n".join(lines), mimetype="text/plain")


def _response(wanted: GenerateRequest, script: Script, engine: ScriptedEngine) -> Sequence[int]:
    params, draw = wanted.sampling_params, "greedy"
    if params.temperature > 0:
        draw = engine.draw_name() if params.seed is None else f"seed {params.seed}"
    return params.allowed_token_ids or script.response(wanted.token_ids, draw)


def _hung_up(caller: socket.socket) -> bool:
    poller = select.poll()
    try:
        poller.register(caller, select.POLLIN)
        return bool(poller.poll(0)) and caller.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def _body() -> dict[str, Any]:
    body = request.get_json(force=True)
    if not isinstance(body, dict):
        raise BadRequestError("Request body must be a JSON object")
    return body


def _json(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content), status, mimetype="application/json")


def _error(status: int, kind: str, message: str) -> Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return _json(body, status)
