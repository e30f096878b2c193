"""The asynchronous client has the names, parameters and results of the blocking one."""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, get_type_hints

import pytest

from rollyard import AsyncClient, AsyncTrainingRun, Client, TrainingRun
from rollyard.rows import Row

PAIRS = [(Client, AsyncClient), (TrainingRun, AsyncTrainingRun)]
ASYNCHRONOUS = {
    Iterator: AsyncIterator,
    TrainingRun: AsyncTrainingRun,
    Iterable[Row | Iterable[Row]]: (
        Iterable[Row | Iterable[Row]] | AsyncIterable[Row | Iterable[Row]]
    ),
}


def methods(kind: type) -> dict[str, Any]:
    """The public ones, and `__enter__` and `__exit__` whatever they are called."""
    named = inspect.getmembers(kind, inspect.isfunction)
    plain = {name.replace("__a", "__"): method for name, method in named}
    return {n: m for n, m in plain.items() if n[0] != "_" or n in ("__enter__", "__exit__")}


def awaited(kind: Any) -> Any:
    """What stands for a type of the blocking client in the asynchronous one."""
    if getattr(kind, "__origin__", None) is Iterator:
        return AsyncIterator[kind.__args__]
    return ASYNCHRONOUS.get(kind, kind)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_have_the_same_methods(blocking: type, asynchronous: type) -> None:
    assert methods(blocking).keys() == methods(asynchronous).keys()
    made = inspect.signature(Client), inspect.signature(AsyncClient)
    assert made[0].parameters == made[1].parameters


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [
        pytest.param(method, methods(theirs)[name], id=f"{ours.__name__}.{name}")
        for ours, theirs in PAIRS
        for name, method in methods(ours).items()
    ],
)
def test_a_method_takes_and_gives_the_same(blocking: Any, asynchronous: Any) -> None:
    assert inspect.iscoroutinefunction(asynchronous) or inspect.isasyncgenfunction(asynchronous)
    ours, theirs = inspect.signature(blocking), inspect.signature(asynchronous)
    assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()
    ]
    hints = {name: awaited(kind) for name, kind in get_type_hints(blocking).items()}
    assert hints == get_type_hints(asynchronous)
