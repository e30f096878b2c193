"""`python -m llm_servers.scripted --model DIR --port N`: serve the scripted policy."""

import argparse
import sys
from pathlib import Path

from llm_servers.adapter_place import AdapterPlace, place_of
from llm_servers.scripted.adapters import ScriptedAdapters
from llm_servers.scripted.app import create_app
from llm_servers.scripted.engine import ScriptedEngine
from llm_servers.scripted.replies import read_replies
from llm_servers.scripted.routes import KINDS
from llm_servers.scripted.script import Script, ScriptSettings, Vocabulary
from rollyard.errors import RollyardError
from serving.bind import Bind
from serving.gunicorn import Service, serve


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m llm_servers.scripted", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="directory with tokenizer.json")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tool-rate", type=float, default=0.5)
    parser.add_argument("--token-seconds", type=float, default=0.0, help="time to draw one token")
    parser.add_argument("--replies", type=Path, help="file of replies: see replies.py")
    parser.add_argument("--kind", choices=KINDS, default="vllm", help="what it stands in for")
    parser.add_argument("--enable-lora", action="store_true", help="take adapters, as vLLM's")
    parser.add_argument("--max-lora-rank", type=int, default=16)
    parser.add_argument("--max-model-len", type=int, default=2048)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    values = parse_arguments(arguments)
    try:
        bind = Bind(host=values.host, port=values.port)
        settings = ScriptSettings(
            seed=values.seed, tool_rate=values.tool_rate, replies=read_replies(values.replies)
        )
        script = Script(Vocabulary.load(values.model), settings)
    except RollyardError as error:
        print(f"rollyard scripted LLM server: {error}", file=sys.stderr)
        return 2

    def start() -> Service:
        adapters = None
        if values.enable_lora:
            place = AdapterPlace.make(place_of(bind), values.model)
            adapters = ScriptedAdapters(place.path, values.max_lora_rank)
        engine = ScriptedEngine(values.model, token_seconds=values.token_seconds, adapters=adapters)
        return Service(create_app(script, engine, values.max_model_len, values.kind), lambda: None)

    serve(start, bind)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
