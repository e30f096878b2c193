"""The scripted server's engine: running requests, pauses, and weights.

- Tokens are sampled under one lock: once `pause` returns, none appears until `resume`.
- The tokens of a response come at a steady pace: one that was late does not delay the next.
- Each token carries the version in force when it was sampled; versions change between tokens only.
- As in vLLM, weights have no version until they are labelled, also after a restart.
- As in vLLM, a failed reload leaves no usable weights: the engine breaks at its next token unless a
  good reload comes first, and a broken engine stays broken.
"""

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from llm_servers.scripted.adapters import ScriptedAdapters
from llm_servers.scripted.refusals import ServerFailure
from llm_servers.scripted.script import LogprobChain

_NO_WEIGHTS = ""
_UNLABELLED = "default"
"""vLLM's label of the weights that it started with."""
_AS_STARTED = "the model as started"
"""Fingerprint of a model directory without weights: a script needs none."""
_WHILE_PAUSED_SECONDS = 600.0
"""The longest a request waits for `resume`."""
_LATE_SECONDS = 0.1
"""The longest delay that later tokens make up for."""


class ScriptedGeneration(msgspec.Struct):
    """A running request, guarded by the engine's lock."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    versions: list[str]
    aborted: bool = False
    finish_reason: str = ""


class ScriptedEngine:
    """Any number of requests at once, each in its caller's thread."""

    def __init__(
        self, model: Path, *, token_seconds: float, adapters: ScriptedAdapters | None = None
    ) -> None:
        """`adapters` is None if the server takes none."""
        self._token_seconds = token_seconds
        self.adapters = adapters
        self._changed = threading.Condition()
        self.model = model
        self._weights = _fingerprint(model) or _AS_STARTED
        self._calls = itertools.count()
        self.version = _UNLABELLED
        self.paused = False
        self.broken = False
        self.running: list[ScriptedGeneration] = []
        self.tokens_generated = 0

    def draw_name(self) -> str:
        """A name that no earlier call had, for unnamed requests and unseeded samples."""
        return f"call {next(self._calls)}"

    def draw(
        self,
        generation: ScriptedGeneration,
        prompt_ids: Sequence[int],
        *,
        adapted: bool = False,
        response: Sequence[int],
        ends: Callable[[list[int]], str],
        gone: Callable[[], bool],
    ) -> Iterator[int]:
        """Generate the tokens of `response` over and over, until `ends` returns a finish reason or
        the caller is `gone`; yield their number whenever there is one more. It is `adapted` if the
        request names the adapter."""
        with self._changed:
            self.running.append(generation)
        try:
            chain, weights, tokens = LogprobChain(""), None, itertools.cycle(response)
            due = time.monotonic()
            while not generation.finish_reason and not gone():
                with self._changed:
                    due = max(due, time.monotonic() - _LATE_SECONDS) + self._token_seconds
                    if not self._may_draw(generation, due):
                        generation.finish_reason = "abort"
                        break
                    if weights != (now := self._in_force(adapted)):
                        weights = now
                        chain = LogprobChain(now, [*prompt_ids, *generation.token_ids])
                    self._append(generation, next(tokens), chain)
                    generation.finish_reason = ends(generation.token_ids)
                yield len(generation.token_ids)
        finally:
            with self._changed:
                self.running.remove(generation)

    def score(self, token_ids: Sequence[int], *, adapted: bool = False) -> list[float]:
        """The logprob of each token given those before it, under the weights in force."""
        with self._changed:
            self._check_weights()
            chain = LogprobChain(self._in_force(adapted))
        return [chain.extend(token) for token in token_ids]

    def abort(self, meant: Callable[[str], bool]) -> None:
        """Abort the requests whose ids are `meant`."""
        with self._changed:
            for generation in self.running:
                if meant(generation.request_id):
                    generation.aborted = True
            self._changed.notify_all()

    def pause(self) -> None:
        with self._changed:
            self.paused = True

    def resume(self) -> None:
        with self._changed:
            self.paused = False
            self._changed.notify_all()

    def reload(self, path: Path) -> None:
        """Load the weights at `path`. Raises `ServerFailure`; no weights are left then."""
        fingerprint = _fingerprint(path)
        with self._changed:
            self._weights = fingerprint
            if self.adapters is not None:
                self.adapters.drop()
        if fingerprint == _NO_WEIGHTS:
            raise ServerFailure(
                f"Call to collective_rpc method failed: Cannot find any model weights with `{path}`"
            )

    def set_version(self, version: str) -> None:
        with self._changed:
            self.version = version

    def _may_draw(self, generation: ScriptedGeneration, due: float) -> bool:
        """Wait until the next token is due, and for `resume` if paused. Returns False if the
        request was aborted, or paused for too long."""
        self._changed.wait_for(lambda: generation.aborted, timeout=due - time.monotonic())
        resumed = self._changed.wait_for(
            lambda: generation.aborted or not self.paused, timeout=_WHILE_PAUSED_SECONDS
        )
        if generation.aborted or not resumed:
            return False
        self._check_weights()
        return True

    def _in_force(self, adapted: bool) -> str:
        return self._weights + (self.adapters.in_force if adapted and self.adapters else "")

    def _append(self, generation: ScriptedGeneration, token: int, chain: LogprobChain) -> None:
        generation.token_ids.append(token)
        generation.logprobs.append(chain.extend(token))
        generation.versions.append(self.version)
        self.tokens_generated += 1

    def _check_weights(self) -> None:
        if self.broken or self._weights == _NO_WEIGHTS:
            self.broken = True
            raise ServerFailure("EngineCore encountered an issue: it holds no weights")


def _fingerprint(checkpoint: Path) -> str:
    """Digest of the weights at `checkpoint`; `_NO_WEIGHTS` if there are none."""
    files = sorted(checkpoint.glob("*.safetensors"))
    if not files:
        return _NO_WEIGHTS
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
