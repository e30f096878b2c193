"""An environment of another package: it answers well, or goes wrong in a way that its row names."""

import contextlib
import ctypes
import os
import signal
import sys
import threading

from agent_server.environments.protocol import Needs, Observation, Response
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from rollyard.messages import ChatMessage, Prompt

FOREVER_SECONDS = 3600.0
DEEP = "path=$(printf 'd/%.0s' {1..1500}); mkdir -p $path && cd $path && mkdir -p $path"


class Misbehaves:
    """Echoes; `instance["wrong"]` says what goes wrong and `instance["at"]` in which method."""

    needs = Needs(sandbox=SandboxNeeds())

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self._instance, self._sandbox, self._steps = prompt.instance, sandbox, 0
        self._go_wrong("start")
        return (ChatMessage(role="user", content="37*48"),)

    def step(self, response: Response) -> Observation:
        self._steps += 1
        self._go_wrong("step")
        if response.text == "bye" or self._steps == 2:
            return Observation(done=True)
        ran = self._sandbox.run(["/bin/cat"], stdin=response.text, deadline_seconds=20)
        return Observation(messages=(ChatMessage(role="tool", content=ran.output),))

    def grade(self) -> float:
        self._go_wrong("grade")
        return bool(self._steps)

    def _go_wrong(self, method: str) -> None:
        if self._instance.get("at") == method:
            self._sandbox.run(["/bin/true"], deadline_seconds=20)  # so that it is known where it is
            getattr(self, f"_{self._instance['wrong']}")()

    def _hang(self) -> None:
        threading.Event().wait(FOREVER_SECONDS)

    def _hold_the_gil(self) -> None:
        ctypes.PyDLL(None).sleep(int(FOREVER_SECONDS))

    def _leave(self) -> None:
        print("the answer is in the stars", flush=True)
        os._exit(7)

    def _exit(self) -> None:
        sys.exit("enough")

    def _fail(self) -> None:
        raise KeyError("a bug")

    def _recurse(self) -> None:
        self._recurse()

    def _crash(self) -> None:
        ctypes.string_at(0)

    def _fork(self) -> None:
        while True:
            try:
                os.fork()
            except OSError:
                self._hang()

    def _daemonise(self) -> None:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                self._hang()
            os._exit(0)
        self._hang()

    def _nest(self) -> None:
        self._sandbox.run(["/bin/bash", "-c", DEEP], deadline_seconds=60)

    def _flood(self) -> None:
        while True:
            os.write(1, b"x" * 65536)

    def _hoard(self) -> None:
        hoard = []
        while True:
            hoard.append(bytearray(1 << 24))

    def _block_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._hang()

    def _talk_nonsense(self) -> None:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"\xff" * 64)
            except OSError:
                continue

    def _break_off(self) -> None:
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(descriptor, (1 << 20).to_bytes(4, "big") + b"the beginning of an answer")
        os._exit(7)

    def _look_around(self) -> None:
        raise RuntimeError(" ".join(os.environ))


class NeedsInWords(Misbehaves):
    needs = "a sandbox"  # type: ignore[assignment]
