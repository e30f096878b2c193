"""Plays one row of an environment of `verifiers`, in the sandbox and in the library's own Python.

The environment, its tools and its rubric run in this process. What came of the row is written once,
signed with the key of the task: code that the policy has its tools run in the sandbox can remove
the file, and cannot make another. It neither finds the key, which is gone from the disk before the
first turn, nor reads the memory of this process.
"""

import asyncio
import ctypes
import functools
import hashlib
import hmac
import importlib
import inspect
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import verifiers as vf
from openai import BadRequestError, PermissionDeniedError
from openai.types.chat import ChatCompletion
from verifiers.clients import OpenAIChatCompletionsClient
from verifiers.types import ClientConfig

TASK = Path("task.json")
RESULT = Path("result.json")
_PR_SET_DUMPABLE = 4
_PATIENCE_SECONDS = 7 * 24 * 3600.0
"""Longer than any Job: a turn takes as long as its Job is parked."""
_SHOWN_CHARACTERS = 1000


class NotScored(Exception):
    """A rollout of which no reward can be told."""


class TimeIsOver(NotScored):
    """A time limit of the environment's own that has passed, whoever took the time."""


class Report:
    """The one result, of which the first is written."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._lock = threading.Lock()
        self._written = False

    def write(self, **fields: object) -> None:
        with self._lock:
            if self._written:
                return
            body = json.dumps(fields)
            mac = hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()
            made = RESULT.with_suffix(".new")
            made.write_text(json.dumps({"body": body, "mac": mac}))
            if RESULT.is_dir():  # which no program of ours makes
                shutil.rmtree(RESULT)
            made.replace(RESULT)
            self._written = True

    def failure(self, error: BaseException) -> None:
        unavailable = (vf.InfraError, OSError, TimeoutError, TimeIsOver)
        away = any(isinstance(each, unavailable) for each in _chain(error))
        said = " caused by ".join(_shown(each) for each in _chain(error))
        self.write(outcome="unavailable" if away else "failed", reason=said[-_SHOWN_CHARACTERS:])


class Watch:
    """The time that the environment takes by itself. It begins anew with each answer of the policy,
    and is not counted while a request is under way."""

    def __init__(self, seconds: float, report: Report) -> None:
        self._seconds = seconds
        self._report = report
        self._lock = threading.Lock()
        self._requests = 0
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        self._timer = threading.Timer(self._seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        with self._lock:
            self._requests += 1
            if self._timer is not None:
                self._timer.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._requests -= 1
                if not self._requests:
                    self.start()

    def _expire(self) -> NoReturn:
        """From a thread: what hangs may hold the event loop."""
        self._report.failure(TimeIsOver(f"the environment took more than {self._seconds:g} s"))
        os._exit(0)


class GatewayPolicy(OpenAIChatCompletionsClient):  # type: ignore[misc]
    """The library's client. A spent Job ends the rollout as a full context does: it is scored."""

    def __init__(self, config: ClientConfig, watch: Watch) -> None:
        super().__init__(config)
        self._watch = watch

    async def get_response(self, *given: Any, **named: Any) -> Any:
        with self._watch.standing_still():
            try:
                return await super().get_response(*given, **named)
            except PermissionDeniedError as error:
                raise vf.OverlongPromptError from error
            except vf.ModelError as error:
                if _is_full_context(error.__cause__):
                    raise vf.OverlongPromptError from error
                raise


class Solution(GatewayPolicy):
    """A policy that says what the row gives as its solution, turn by turn."""

    def __init__(self, config: ClientConfig, watch: Watch, says: list[Any]) -> None:
        super().__init__(config, watch)
        self._says = [{"content": said} if isinstance(said, str) else said for said in says]

    async def get_native_response(self, *given: Any, **named: Any) -> ChatCompletion:
        if not self._says:
            raise vf.OverlongPromptError("the solution has no more turns")
        message = {"role": "assistant", "content": None, **self._says.pop(0)}
        for number, call in enumerate(message.get("tool_calls") or ()):
            call.update(id=f"call_{number}", type="function")
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        completion = {"id": "solution", "object": "chat.completion", "created": 0}
        return ChatCompletion.model_validate(
            {**completion, "model": "solution", "choices": [choice]}
        )


async def play(task: dict[str, Any], report: Report) -> None:
    watch = Watch(task["seconds"], report)
    policy = _policy(task, watch)
    environment = _load(task["env"], task["args"])
    if environment.rubric.has_group_rewards:
        raise NotScored("its rubric compares the rollouts of a group, and is shown one at a time")
    failed: list[Exception] = []
    unmeasured: set[str] = set()
    for rubric in _rubrics(environment.rubric):
        for place, weight in enumerate(rubric.weights):
            function = rubric.funcs[place]
            lost = failed.append if weight else functools.partial(_add, unmeasured, function)
            rubric.funcs[place] = _watched(function, lost)
    watch.start()
    state = await environment.rollout(task["input"], policy, "policy", {})
    _check(state)
    await environment.rubric.score_rollout(state)
    if failed:
        raise NotScored("its rubric failed") from failed[0]
    metrics = {k: float(v) for k, v in state["metrics"].items() if k not in unmeasured}
    reward, ending = float(state["reward"]), str(state.get("stop_condition"))
    await environment.rubric.cleanup(state)
    report.write(outcome="graded", reward=reward, metrics=metrics, reason=ending)


def _policy(task: dict[str, Any], watch: Watch) -> GatewayPolicy:
    config = ClientConfig(
        api_key_var="OPENAI_API_KEY",
        api_base_url=os.environ.get("OPENAI_BASE_URL", ""),
        timeout=_PATIENCE_SECONDS,
    )
    says = task.get("solution")
    policy = GatewayPolicy(config, watch) if says is None else Solution(config, watch, says)
    # A judge that is given no model of its own would ask the policy, and train it on the answer.
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))]:
        del os.environ[name]
    return policy


def _load(name: str, arguments: dict[str, Any]) -> Any:
    """An environment's package by its name, or any callable that makes one, as `module:name`."""
    module, _, member = name.partition(":")
    if not member:
        return vf.load_environment(name, **arguments)
    return getattr(importlib.import_module(module), member)(**arguments)


def _rubrics(rubric: Any) -> Iterator[Any]:
    """The rubric, and those that it asks."""
    yield rubric
    for each in getattr(rubric, "rubrics", ()):
        yield from _rubrics(each)
    for environment in getattr(rubric, "env_map", {}).values():
        yield from _rubrics(environment.rubric)


def _watched(function: Callable[..., Any], lost: Callable[[Exception], object]) -> Any:
    """The function, which tells what it raises: the library makes a reward of 0 of it."""

    @functools.wraps(function)
    async def call(*given: Any, **named: Any) -> float:
        try:
            found = function(*given, **named)
            return float(await found if inspect.isawaitable(found) else found)
        except Exception as error:
            lost(error)
            raise

    return call


def _add(names: set[str], function: Callable[..., Any], _: Exception) -> None:
    names.add(getattr(function, "__name__", ""))


def _check(state: dict[str, Any]) -> None:
    """Raise what went wrong, unless the policy's own words did."""
    if state.get("timed_out"):
        raise TimeIsOver("the environment's own time for a rollout was over")
    error = state.get("error")
    if error is not None and not isinstance(
        error, vf.InvalidModelResponseError | vf.ToolParseError
    ):
        raise error


def _is_full_context(error: BaseException | None) -> bool:
    return isinstance(error, BadRequestError) and error.code == "context_length_exceeded"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _shown(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def main() -> int:
    task = json.loads(TASK.read_text())
    TASK.unlink()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    report = Report(task.pop("key"))
    try:
        asyncio.run(play(task, report))
    except Exception as error:
        traceback.print_exc()
        report.failure(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
