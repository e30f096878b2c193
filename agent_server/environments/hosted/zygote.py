"""`python -m agent_server.environments.hosted.zygote FD`: imports others' code once, and forks.

- It has one thread and no credentials: it was started afresh, with few environment variables.
- It is the first process of a process table in which everything that it forks lives: with it, or
  with the agent server that holds the other ends of FD and standard input, all of them die.
- It never waits for a server that does not listen, which would keep others from being started.
- With the order for a new child come three descriptors: the child's end of a socket pair, the pipe
  for its output, and the zygote's end of another pair. Over the last, which no child has, the
  zygote reports how the child began and how it ended.
"""

import gc
import os
import select
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any, NoReturn

from agent_server.environments.hosted import containment, frames
from agent_server.environments.protocol import Needs, declared_needs
from agent_server.rewards.protocol import warm_up

Serve = Callable[[socket.socket, Any], None]


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    containment.be_counted()
    containment.enter_new_namespaces()
    if (child := os.fork()) != 0:
        control.close()
        # Standard input ends with the server. The signal that a parent's death sends would come
        # when the thread ends that started us.
        select.select([sys.stdin, os.pidfd_open(child)], [], [])
        os._exit(0)
    containment.die_with_parent()
    wanted, _ = frames.receive_packet(control)
    if not isinstance(wanted, frames.Load):
        return  # the server is gone already
    loaded: dict[str, Any] = {}
    needs: dict[str, Needs] = {}
    for name, value in wanted.entry_points:
        try:
            loaded[name] = EntryPoint(name, value, "").load()
            needs[name] = declared_needs(loaded[name])
            warm_up(loaded[name])
        except BaseException as error:  # whatever importing a stranger's package raises
            problem = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
            frames.send_packet(control, frames.Failed(f"{name!r} from {value}: {problem}"))
            os._exit(1)
    serve: Serve = EntryPoint("serve", wanted.serve, "").load()
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page with an object
    frames.send_packet(control, frames.LoadedFrame(needs))
    Zygote(control, wanted.limits, serve, loaded).serve()


class Zygote:
    """Owns its children: it starts them, reaps them, and reports on them."""

    def __init__(
        self,
        control: socket.socket,
        limits: containment.ProcessLimits,
        serve: Serve,
        loaded: dict[str, Any],
    ) -> None:
        self._control = control
        self._limits = limits
        self._serve = serve
        self._loaded = loaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """Descriptor of each child -> its process id, and the socket for reports on it."""

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._bury(key.fd)
                    continue
                wanted, descriptors = frames.receive_packet(self._control)
                if not isinstance(wanted, frames.Bear):
                    os._exit(0)  # and everything that lives in here dies
                server, output, report = descriptors
                self._bear(wanted.name, server, output, socket.socket(fileno=report))

    def _bear(self, name: str, server: int, output: int, report: socket.socket) -> None:
        try:
            child = self._fork(name, server, output, report)
        except OSError as error:  # the machine has no room for another process
            frames.send_packet_at_once(report, frames.Failed(str(error)))
            return report.close()
        finally:
            os.close(server)
            os.close(output)
        handle = os.pidfd_open(child)
        if frames.send_packet_at_once(report, frames.Born(), handle):
            self._selector.register(handle, selectors.EVENT_READ)
            self._children[handle] = child, report
            return None
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(handle)
        return report.close()

    def _fork(self, name: str, server: int, output: int, report: socket.socket) -> int:
        """Fork a process that makes a process table and forks the first process in it, which
        becomes our child when the one between has ended. Returns the id of that first process.
        Raises `OSError` if there is none."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                if (between := os.fork()) == 0:
                    ours.close()
                    report.close()
                    self._beget(name, server, output, theirs)
            containment.help_in(ours)
            number = ours.recv(32)
        os.waitpid(between, 0)
        if not number.isdigit():
            raise OSError(number.decode() or "its process could not be started")
        return int(number)

    def _beget(self, name: str, server: int, output: int, zygote: socket.socket) -> NoReturn:
        try:
            containment.enter_new_namespaces(outside=zygote)
            if (child := os.fork()) == 0:
                zygote.close()
                self._live(name, server, output)
            zygote.send(str(child).encode())
        except OSError as error:
            zygote.send(str(error).encode()[:32])
        finally:
            os._exit(0)

    def _live(self, name: str, server: int, output: int) -> NoReturn:
        """Become the process for one object."""
        try:
            os.setsid()
            self._control.close()
            self._selector.close()
            for handle, (_, other) in self._children.items():
                os.close(handle)
                other.close()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for target, source in ((0, nothing), (1, output), (2, output)):
                os.dup2(source, target)
            os.close(nothing)
            os.close(output)
            # Made anew, since what they wrote to is a pipe now; by lines, so that none is lost.
            sys.stdout = sys.stderr = open(  # noqa: SIM115 - closed by the process's end
                1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
            )
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            containment.limit(self._limits)
            self._serve(socket.socket(fileno=server), self._loaded[name])
            os._exit(0)
        except BaseException:  # the boundary of the process
            traceback.print_exc()
        finally:
            os._exit(1)

    def _bury(self, handle: int) -> None:
        self._selector.unregister(handle)
        child, report = self._children.pop(handle)
        _, status = os.waitpid(child, 0)
        os.close(handle)
        frames.send_packet_at_once(report, frames.Ended(status))
        report.close()


if __name__ == "__main__":
    main()
