"""Command-line options of the LLM servers' engine, for every command that starts some."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from launch.engine import LLM_START_SECONDS, Engine, LLMKind, listed
from launch.vllm_environment import DEFAULT_LLM_PYTHON

T = TypeVar("T")

LLM = Annotated[LLMKind, typer.Option(help="Real vLLM, or the scripted stand-in.")]
LLMPython = Annotated[Path, typer.Option(help="Python interpreter that has vLLM.")]
DType = Annotated[
    str | None,
    typer.Option(help="Type of the weights.  [default: float32; with --gpus the model's own]"),
]
ContextLength = Annotated[
    int | None,
    typer.Option(help="Context length in tokens.  [default: the model's, if it fits]", min=2),
]
Gpus = Annotated[
    str,
    typer.Option(help="CUDA devices, comma-separated; the LLM servers share them evenly."),
]
StartSeconds = Annotated[
    float, typer.Option(help="Time for an LLM server to become ready, in seconds.", min=1)
]
VLLMOptions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- VLLM OPTIONS]", help="Options passed on to vLLM.", show_default=False
    ),
]


def chosen_engine(
    *,
    llm: LLM = LLMKind.VLLM,
    llm_python: LLMPython = DEFAULT_LLM_PYTHON,
    dtype: DType = None,
    max_model_len: ContextLength = None,
    gpus: Gpus = "",
    start_seconds: StartSeconds = LLM_START_SECONDS,
    vllm_options: VLLMOptions = None,
) -> Engine:
    return Engine(
        kind=llm,
        python=llm_python,
        dtype=dtype,
        max_model_len=max_model_len,
        gpus=listed(gpus),
        start_seconds=start_seconds,
        further=tuple(vllm_options or ()),
    )


def built(
    parameter: str, build: Callable[..., Any]
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A decorator for commands: the options of `build` take the place of `parameter`, which is
    given what `build` makes of them."""
    # typer reads a command's options from its signature, so that is what has to change.
    options = inspect.signature(build).parameters

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def run(**given: Any) -> T:
            made = build(**{name: given.pop(name) for name in options})
            return command(**given, **{parameter: made})

        parameters: list[inspect.Parameter] = []
        for each in signature.parameters.values():
            parameters += options.values() if each.name == parameter else (each,)
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate


with_engine = built("engine", chosen_engine)
"""The command with the options of `chosen_engine` in the place of its parameter `engine`."""
