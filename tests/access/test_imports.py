"""Nothing of ours turns bytes into objects that run: only messages with a schema cross a wire."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("rollyard", "serving", "orchestrator", "agent_server", "llm_servers", "launch")
BANNED_MODULES = frozenset(
    {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
)
BANNED_CALLS = frozenset({"eval", "exec", "torch.load", "yaml.load", "numpy.load", "np.load"})
PLAIN = "weights_only=True"
"""With this torch.load makes tensors and plain values alone."""


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (CHECKOUT / package).rglob("*.py"))


def offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (n.name for n in names if n.name.split(".")[0] in BANNED_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in BANNED_MODULES:
                yield module
            case ast.Call(func=called, keywords=given) if ast.unparse(called) in BANNED_CALLS:
                if PLAIN not in map(ast.unparse, given):
                    yield ast.unparse(called)
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield "shell=True"


def test_no_module_unpickles_evaluates_or_runs_a_shell() -> None:
    assert len(sources()) > 80
    found = [
        (str(path), what) for path in sources() for what in offences(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from dill import loads",
        "import cloudpickle.cloudpickle",
        "x = eval('1')",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "subprocess.run('ls', shell=True)",
    ],
)
def test_what_is_banned_is_found(code: str) -> None:
    assert list(offences(ast.parse(code)))
