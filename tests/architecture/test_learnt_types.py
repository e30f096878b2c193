"""msgspec learns a type in one thread at a time: a second one that meets it half learnt crashes."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODEC = "rollyard/codec.py"
STARTS = 8
THREADS = 12
AT_ONCE = f"""
import sys, threading
sys.setswitchinterval(1e-6)
from rollyard import codec, messages

kinds = [messages.Batch, messages.FleetStatus, messages.RunStatus, messages.Result, messages.Job]
nested = {{"run_id": "x", "groups": [{{"results": [{{}}]}}], "servers": [{{}}], "runs": [{{}}]}}
message = codec.encode(nested)
together = threading.Barrier({THREADS})

def decode(first):
    together.wait(30)
    for kind in kinds[first:] + kinds[:first]:
        try:
            codec.decode(message, kind)
        except codec.InvalidMessage:
            pass

threads = [threading.Thread(target=decode, args=(n % len(kinds),)) for n in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def calls_with_a_type() -> list[tuple[str, ast.expr]]:
    """Where msgspec is given a type, in modules but the codec, and that type."""
    found = []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in settings["tool"]["importlinter"]["root_packages"]:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            text = file.read_text()
            if "msgspec." not in text:  # to parse them all takes a while
                continue
            for node in ast.walk(ast.parse(text)):
                kind = type_given(node)
                if kind is not None and name != CODEC:
                    found.append((f"{name}:{kind.lineno}", kind))
    return found


def type_given(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, ast.Call):
        return None
    called = ast.unparse(node.func)
    named = [each.value for each in node.keywords if each.arg == "type"]
    if called == "msgspec.convert":
        return (named or node.args[1:])[0]
    if called.startswith("msgspec.") and called.endswith(".Decoder"):
        return (named or node.args)[0]
    if called.startswith("msgspec.") and called.endswith(".decode") and named:
        return named[0]
    return None


def test_msgspec_is_given_no_type_that_is_not_learnt() -> None:
    calls = calls_with_a_type()
    assert calls
    assert [where for where, kind in calls if not ast.unparse(kind).startswith("learnt(")] == []


def test_a_process_whose_threads_meet_the_messages_at_once_survives_it() -> None:
    for _ in range(STARTS):
        ended = subprocess.run([sys.executable, "-c", AT_ONCE], cwd=ROOT, timeout=60, check=False)
        assert ended.returncode == 0
