"""The scripted server's engine: what runs, what is paused, which weights are in force.

- A token is drawn under one lock: once `pause` returns no token appears until `resume`.
- Each token carries the version in force when it was drawn; versions change between tokens only.
- As in vLLM, the weights have no number until somebody gives them one, also after a restart.
- As in vLLM, a reload that fails leaves no usable weights: the engine is broken at its next token,
  unless a good reload comes first, and a broken engine stays broken.
"""

import hashlib
import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from llm_servers.scripted.script import LogprobChain, Script

_NO_WEIGHTS = ""
_UNLABELLED = "default"
"""What vLLM calls the weights that it started with."""
_AS_STARTED = "the model as started"
"""The weights of a model directory that holds a tokenizer alone: a script needs no more."""
_WHILE_PAUSED_SECONDS = 600.0
"""The longest a request waits for `resume`."""


class EngineBrokenError(Exception):
    """The engine lost its weights; only a new process helps."""


class BadCheckpointError(Exception):
    """There are no weights at the path; those before are gone."""


class ScriptedGeneration(msgspec.Struct):
    """One running request. Owned by the engine's lock."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    versions: list[str]
    aborted: bool = False
    finish_reason: str = ""


class ScriptedEngine:
    """Any number of requests at once, each in its caller's thread."""

    def __init__(self, script: Script, *, model: Path, token_seconds: float) -> None:
        self.script = script
        self._token_seconds = token_seconds
        self._changed = threading.Condition()
        self._weights = _fingerprint(model) or _AS_STARTED
        self._version = _UNLABELLED
        self._paused = False
        self._broken = False
        self._running: list[ScriptedGeneration] = []
        self._calls = itertools.count()
        self.tokens_generated = 0

    @property
    def version(self) -> str:
        return self._version

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def broken(self) -> bool:
        return self._broken

    @property
    def requests_running(self) -> int:
        return len(self._running)

    def draw_name(self) -> str:
        """What makes the next unseeded sample differ from all before."""
        return f"call {next(self._calls)}"

    def generate(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        *,
        says: Callable[[str], Sequence[int]],
        ends: Callable[[list[int]], str],
        gone: Callable[[], bool],
    ) -> ScriptedGeneration:
        """Answer what the version in force `says` to the prompt, until `ends` names a finish
        reason or the caller is `gone`."""
        generation = ScriptedGeneration(request_id, [], [], [])
        with self._changed:
            self._running.append(generation)
        try:
            chain, weights, response = LogprobChain(""), None, itertools.cycle([0])
            while not generation.finish_reason and not gone():
                with self._changed:
                    if not self._may_draw(generation):
                        generation.finish_reason = "abort"
                        break
                    if not generation.token_ids:
                        response = itertools.cycle(says(self._version))
                    if weights != self._weights:
                        weights = self._weights
                        chain = LogprobChain(weights, [*prompt_ids, *generation.token_ids])
                    self._append(generation, next(response), chain)
                    generation.finish_reason = ends(generation.token_ids)
        finally:
            with self._changed:
                self._running.remove(generation)
        return generation

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """The logprob of each token given those before it, under the weights in force."""
        with self._changed:
            self._check_weights()
            weights = self._weights
        return list(self.script.logprobs(weights, token_ids))

    def abort(self, request_ids: frozenset[str]) -> None:
        with self._changed:
            for generation in self._running:
                if generation.request_id in request_ids:
                    generation.aborted = True
            self._changed.notify_all()

    def pause(self) -> None:
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def reload(self, path: Path) -> None:
        """Take the weights at `path`. Raises `BadCheckpointError`, with no weights left."""
        fingerprint = _fingerprint(path)
        with self._changed:
            self._weights = fingerprint
        if fingerprint == _NO_WEIGHTS:
            raise BadCheckpointError(f"Cannot find any model weights with `{path}`")

    def set_version(self, version: str) -> None:
        with self._changed:
            self._version = version

    def _may_draw(self, generation: ScriptedGeneration) -> bool:
        """Wait for the next token's time, and for `resume`. False: aborted meanwhile."""
        self._changed.wait_for(lambda: generation.aborted, timeout=self._token_seconds)
        resumed = self._changed.wait_for(
            lambda: generation.aborted or not self._paused, timeout=_WHILE_PAUSED_SECONDS
        )
        if generation.aborted or not resumed:
            return False
        self._check_weights()
        return True

    def _append(self, generation: ScriptedGeneration, token: int, chain: LogprobChain) -> None:
        generation.token_ids.append(token)
        generation.logprobs.append(chain.extend(token))
        generation.versions.append(self._version)
        self.tokens_generated += 1

    def _check_weights(self) -> None:
        if self._broken or self._weights == _NO_WEIGHTS:
            self._broken = True
            raise EngineBrokenError("EngineCore encountered an issue: it holds no weights")


def _fingerprint(checkpoint: Path) -> str:
    """Names the weights at `checkpoint` by their content; `_NO_WEIGHTS` if there are none."""
    files = sorted(checkpoint.glob("*.safetensors"))
    if not files:
        return _NO_WEIGHTS
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
