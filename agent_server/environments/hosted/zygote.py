"""`python -m agent_server.environments.hosted.zygote FD`: imports environments once, and forks.

- It has one thread and no credentials: it was started afresh, with few environment variables.
- It is the first process of a process table in which everything that it forks lives: with it, or
  with the agent server that holds the other ends of FD and standard input, all of them die.
- It never waits for a server that does not listen, which would keep others from being started.
- A new child is asked for by its environment's name, with three descriptors: the child's end of a
  socket pair, the pipe for its output, and the zygote's end of another pair. Over the last, which
  no child has, the zygote tells how the child began and how it ended.
"""

import gc
import os
import select
import selectors
import signal
import socket
import sys
import traceback
from importlib.metadata import EntryPoint
from typing import NoReturn

from agent_server.environments.hosted import containment
from agent_server.environments.hosted.child import serve
from agent_server.environments.hosted.frames import (
    Bear,
    Born,
    Ended,
    Load,
    LoadedFrame,
    NotBorn,
    receive_packet,
    send_packet,
    send_packet_at_once,
)
from agent_server.environments.protocol import MakeEnvironment, Needs, declared_needs


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    containment.be_counted()
    containment.enter_new_namespaces()
    if (child := os.fork()) != 0:
        control.close()
        # the end of standard input is the end of the server, and the signal that a parent's death
        # sends would come when the thread ends that started us
        select.select([sys.stdin, os.pidfd_open(child)], [], [])
        os._exit(0)
    containment.die_with_parent()
    wanted, _ = receive_packet(control)
    if not isinstance(wanted, Load):
        return  # the server is gone already
    makers: dict[str, MakeEnvironment] = {}
    needs: dict[str, Needs] = {}
    for name, value in wanted.entry_points:
        try:
            makers[name] = EntryPoint(name, value, "").load()
            needs[name] = declared_needs(makers[name])
        except BaseException as error:  # whatever importing a stranger's package raises
            problem = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
            send_packet(control, LoadedFrame(f"{name!r} from {value}: {problem}"))
            os._exit(1)
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page with an object
    send_packet(control, LoadedFrame(needs=needs))
    Zygote(control, wanted, makers).serve()


class Zygote:
    def __init__(
        self, control: socket.socket, settings: Load, makers: dict[str, MakeEnvironment]
    ) -> None:
        self._control = control
        self._settings = settings
        self._makers = makers
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """Descriptor of each child -> its number, and where to tell of it."""

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._bury(key.fd)
                    continue
                wanted, descriptors = receive_packet(self._control)
                if not isinstance(wanted, Bear):
                    os._exit(0)  # and everything that lives in here dies
                server, output, report = descriptors
                self._bear(wanted.name, server, output, socket.socket(fileno=report))

    def _bear(self, name: str, server: int, output: int, report: socket.socket) -> None:
        try:
            number = self._fork(name, server, output, report)
        except OSError as error:  # the machine has no room for another process
            number = str(error)
        finally:
            os.close(server)
            os.close(output)
        if not number.isdigit():
            send_packet_at_once(report, NotBorn(number or "its process could not be started"))
            return report.close()
        child = int(number)
        handle = os.pidfd_open(child)
        if send_packet_at_once(report, Born(), handle):
            self._selector.register(handle, selectors.EVENT_READ)
            self._children[handle] = child, report
            return None
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(handle)
        return report.close()

    def _fork(self, name: str, server: int, output: int, report: socket.socket) -> str:
        """Fork a process that makes a process table and forks its first process, which is thereby
        handed to us when the one between has ended. The number of that first process, or why there
        is none. Raises `OSError`."""
        told, tell = os.pipe()
        try:
            if (between := os.fork()) == 0:
                report.close()
                self._beget(name, server, output, tell)
        except OSError:
            os.close(told)
            raise
        finally:
            os.close(tell)
        with os.fdopen(told, "rb", buffering=0) as hearing:
            number = hearing.read(32)
        os.waitpid(between, 0)
        return number.decode()

    def _beget(self, name: str, server: int, output: int, tell: int) -> NoReturn:
        try:
            containment.enter_new_namespaces()
            if (child := os.fork()) == 0:
                os.close(tell)
                self._live(name, server, output)
            os.write(tell, str(child).encode())
        except OSError as error:
            os.write(tell, str(error).encode()[:32])
        finally:
            os._exit(0)

    def _live(self, name: str, server: int, output: int) -> NoReturn:
        """Become the process of one environment."""
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
            containment.limit(
                data_bytes=self._settings.data_bytes, processes=self._settings.processes
            )
            serve(socket.socket(fileno=server), self._makers[name])
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
        send_packet_at_once(report, Ended(status))
        report.close()


if __name__ == "__main__":
    main()
