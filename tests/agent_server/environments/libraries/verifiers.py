"""A stand-in for what is used of the library and of OpenAI's client: one environment, which does
after the policy's last turn what its arguments say."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

State = dict[str, Any]
Messages = list[dict[str, str]]
Measure = Callable[[State], Awaitable[float]]


class Error(Exception):
    pass


class ModelError(Error):
    pass


class InvalidModelResponseError(ModelError):
    pass


class OverlongPromptError(Error):
    pass


class ToolParseError(Error):
    pass


class InfraError(Error):
    pass


class PermissionDeniedError(Exception):
    pass


class BadRequestError(Exception):
    code: str | None = None


class Client:
    def __init__(self, config: Any) -> None:
        self.url, self.key = config.api_base_url, os.environ.get(config.api_key_var)

    async def get_response(self, messages: Messages) -> str:
        try:
            return await self.get_native_response(messages)
        except (Error, PermissionDeniedError):
            raise
        except Exception as error:
            raise ModelError from error

    async def get_native_response(self, messages: Messages) -> str:
        return await asyncio.to_thread(self._ask, messages)

    def _ask(self, messages: Messages) -> str:
        request = urllib.request.Request(
            f"{self.url}/chat/completions",
            json.dumps({"model": "policy", "messages": messages}).encode(),
            {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            said = json.load(error)["error"]
            if error.code == 403:
                raise PermissionDeniedError from None
            if error.code == 400:
                refused = BadRequestError(said["message"])
                refused.code = said["code"]
                raise refused from None
            raise


class Rubric:
    has_group_rewards = False

    def __init__(self, funcs: list[Measure], weights: list[float]) -> None:
        self.funcs, self.weights = funcs, weights

    async def score_rollout(self, state: State) -> None:
        state["metrics"] = {}
        for function in self.funcs:
            try:
                found = float(await function(state))
            except Exception:  # as the library does
                found = 0.0
            state["metrics"][getattr(function, "__name__", "")] = found
        weighed = zip(state["metrics"].values(), self.weights, strict=True)
        state["reward"] = sum(found * weight for found, weight in weighed)

    async def cleanup(self, state: State) -> None:
        pass


class Environment:
    def __init__(self, does: str = "nothing", rubric: str = "answers") -> None:
        self.does = does
        self.rubric = Rubric(*RUBRICS[rubric])
        self.rubric.has_group_rewards = rubric == "compares"

    async def rollout(self, given: State, client: Client, model: str, sampling: object) -> State:
        state: State = {
            "answer": given["answer"],
            "said": [],
            "error": None,
            "stop_condition": "over",
        }
        messages: Messages = []
        try:
            for question in given["questions"]:
                messages.append({"role": "user", "content": question})
                said = await client.get_response(messages)
                state["said"].append(said)
                messages.append({"role": "assistant", "content": said})
            DOES[self.does](state)
        except OverlongPromptError:
            state["stop_condition"] = "prompt_too_long"
        except Error as error:
            state["error"] = error
        return state


def raises(kind: type[Exception]) -> Callable[[State], None]:
    def act(state: State) -> None:
        raise kind("it is lost")

    return act


DOES: dict[str, Callable[[State], object]] = {
    "nothing": lambda state: None,
    "runs code": lambda state: subprocess.run(["/bin/bash", "-c", state["said"][-1]], check=False),
    "loses its sandbox": raises(InfraError),
    "raises": raises(KeyError),
    "cannot read a call": raises(ToolParseError),
    "gets no words": raises(InvalidModelResponseError),
    "cannot reach its server": raises(ConnectionRefusedError),
    "hangs": lambda state: time.sleep(600),
    "is out of time": lambda state: state.update(timed_out=True),
    "dies": lambda state: os._exit(7),
}


async def right(state: State) -> float:
    return float(state["said"][-1:] == [state["answer"]])


async def turns(state: State) -> float:
    return len(state["said"])


async def broken(state: State) -> float:
    raise KeyError("lost")


RUBRICS: dict[str, tuple[list[Measure], list[float]]] = {
    "answers": ([right, turns], [1.0, 0.0]),
    "fails": ([right, broken], [1.0, 0.5]),
    "has a broken metric": ([right, broken], [1.0, 0.0]),
    "compares": ([right], [1.0]),
}


def load_environment(name: str, **arguments: str) -> Environment:
    if name != "questions":
        raise ValueError(f"Could not import '{name}' environment.")
    return Environment(**arguments)


class ChatCompletion:
    @staticmethod
    def model_validate(given: Any) -> str:
        return str(given["choices"][0]["message"]["content"])


def _module(name: str, **members: object) -> None:
    sys.modules[name] = made = ModuleType(name)
    vars(made).update(members)


_module("verifiers.clients", OpenAIChatCompletionsClient=Client)
_module("verifiers.types", ClientConfig=SimpleNamespace)
_module("openai", BadRequestError=BadRequestError, PermissionDeniedError=PermissionDeniedError)
_module("openai.types")
_module("openai.types.chat", ChatCompletion=ChatCompletion)
