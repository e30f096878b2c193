"""`python -m llm_servers.scripted --model DIR --port N`: serve the scripted policy."""

import argparse
import sys
from pathlib import Path

import msgspec

from llm_servers.scripted.app import create_app
from llm_servers.scripted.engine import ScriptedEngine
from llm_servers.scripted.script import Script, ScriptSettings, Vocabulary
from rollyard.errors import RollyardError
from serving.gunicorn import Bind, Service, serve


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one scripted server."""

    model: Path
    bind: Bind
    script: ScriptSettings
    token_seconds: float
    """Time to sample one token."""
    max_model_len: int


def parse_arguments(arguments: list[str]) -> ServerSettings:
    parser = argparse.ArgumentParser(prog="python -m llm_servers.scripted", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="directory with tokenizer.json")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tool-rate", type=float, default=0.5)
    parser.add_argument("--tool-rate-per-version", type=float, default=0.0)
    parser.add_argument("--token-seconds", type=float, default=0.0, help="time to draw one token")
    parser.add_argument("--max-model-len", type=int, default=2048)
    values = parser.parse_args(arguments)
    return ServerSettings(
        model=values.model,
        bind=Bind(host=values.host, port=values.port),
        script=ScriptSettings(
            seed=values.seed,
            tool_rate=values.tool_rate,
            tool_rate_per_version=values.tool_rate_per_version,
        ),
        token_seconds=values.token_seconds,
        max_model_len=values.max_model_len,
    )


def main(arguments: list[str]) -> int:
    try:
        settings = parse_arguments(arguments)
        vocabulary = Vocabulary.load(settings.model)
    except RollyardError as error:
        print(f"rollyard scripted LLM server: {error}", file=sys.stderr)
        return 2

    def start() -> Service:
        engine = ScriptedEngine(
            Script(vocabulary, settings.script),
            model=settings.model,
            token_seconds=settings.token_seconds,
        )
        return Service(create_app(engine, max_model_len=settings.max_model_len), lambda: None)

    serve(start, settings.bind)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
