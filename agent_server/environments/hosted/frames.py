"""The frames that an agent server, its zygote and the process of an environment exchange.

- Nothing is unpickled: a frame is a message in msgpack.
- The server sends an environment `StartFrame`, `StepFrame`, `Solve` or `GradeFrame`. Before it
  answers, the environment may send any number of `SandboxRequest`s and `ScoreFrame`s. They cross a
  stream, each frame behind its length in 4 bytes.
- `Failed` may answer every request.
- The zygote has sockets of its own, which keep packets apart: nothing that an environment writes,
  or leaves half-written, gets between the zygote's words.
"""

import functools
import operator
import socket
import struct

import msgspec

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.protocol import Needs, Observation, Opening, Response
from agent_server.rewards.protocol import ScoreTask
from agent_server.sandbox.protocol import CommandResult
from rollyard.codec import learnt
from rollyard.messages import Grade, Prompt

MAX_FRAME_BYTES = 64 << 20

_PACKET_BYTES = 1 << 16
_MAX_PACKET_DESCRIPTORS = 3
_LENGTH = struct.Struct("!I")


class Frame(msgspec.Struct, frozen=True, tag=True):
    """Base of all frames."""


class Load(Frame, frozen=True):
    """The first frame to the zygote: what to import, and the limits of each of its children."""

    entry_points: tuple[tuple[str, str], ...]
    """Name and value of each."""
    limits: ProcessLimits
    serve: str
    """Function that a child calls with its socket and the object that it was asked for, named as in
    an entry point."""


class Bear(Frame, frozen=True):
    """An order to start a process for the object of this name. With it come the process's socket,
    the pipe for its output, and the socket over which the zygote reports on it."""

    name: str


class LoadedFrame(Frame, frozen=True):
    """The zygote's answer to `Load`, once everything is imported."""

    needs: dict[str, Needs]
    """What each object needs, by name; only environments need something."""


class Born(Frame, frozen=True):
    """The zygote's first report on a new process, whose descriptor comes with it."""


class Ended(Frame, frozen=True):
    """The zygote's last report: the process is gone, and all that it started."""

    status: int
    """Wait status, as `os.waitpid` returns it."""


class StartFrame(Frame, frozen=True):
    prompt: Prompt


class StepFrame(Frame, frozen=True):
    response: Response


class Solve(Frame, frozen=True):
    pass


class GradeFrame(Frame, frozen=True):
    pass


class Opened(Frame, frozen=True):
    opening: Opening


class Solved(Frame, frozen=True):
    pass


class Observed(Frame, frozen=True):
    observation: Observation


class Graded(Frame, frozen=True):
    grade: Grade


class ScoreFrame(Frame, frozen=True):
    """A task for a grader, or for the server's rewards, answered with `Graded`."""

    task: ScoreTask


class SettingsFrame(Frame, frozen=True):
    """Settings of a process, in msgpack and in the terms of the module that runs in it."""

    settings: msgspec.Raw


class Failed(Frame, frozen=True):
    """The answer to a request that could not be carried out."""

    reason: str
    unavailable: bool = False
    """True if something that the environment needs of this server failed, not the environment."""


class RunFrame(Frame, frozen=True):
    """A command for the sandbox of this number, in bytes: what a policy writes need not be Unicode.
    The attempt's own sandbox is number 0."""

    sandbox: int
    argv: tuple[bytes, ...]
    stdin: bytes
    deadline_seconds: float


class BashFrame(Frame, frozen=True):
    """A command for the sandbox's bash session."""

    sandbox: int
    command: bytes
    deadline_seconds: float


class Ran(Frame, frozen=True):
    result: CommandResult


class WriteFrame(Frame, frozen=True):
    sandbox: int
    path: bytes
    content: bytes


class ReadFrame(Frame, frozen=True):
    sandbox: int
    path: bytes
    most_bytes: int


class FileFrame(Frame, frozen=True):
    """The answer to `ReadFrame`, and without content to `WriteFrame`."""

    content: bytes = b""


class FileRefusedFrame(Frame, frozen=True):
    reason: str


class FreshFrame(Frame, frozen=True):
    """A request for a new sandbox with the needs of this one."""

    sandbox: int


class CloseFrame(Frame, frozen=True):
    """A request to close a sandbox that `FreshFrame` opened."""

    sandbox: int


class Numbered(Frame, frozen=True):
    """The answer to `FreshFrame`, and to `CloseFrame`, with the sandbox that was opened or
    closed."""

    sandbox: int


SandboxRequest = RunFrame | BashFrame | WriteFrame | ReadFrame | FreshFrame | CloseFrame

_ANY_FRAME = functools.reduce(operator.or_, Frame.__subclasses__())
_DECODER: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(learnt(_ANY_FRAME))


class BadFrame(Exception):
    """A violation of this protocol by the other end."""


def send(peer: socket.socket, frame: Frame) -> None:
    """Send a frame over a stream. Raises `OSError` when the other end is gone, `BadFrame` for a
    frame that is too large, and `ValueError` for text that is not Unicode."""
    body = msgspec.msgpack.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise BadFrame(f"{len(body)} bytes are more than the {MAX_FRAME_BYTES} of a frame")
    peer.sendall(_LENGTH.pack(len(body)) + body)


def receive(peer: socket.socket) -> Frame | None:
    """The next frame of a stream; None at its end, also if that cuts a frame off. Raises
    `BadFrame`."""
    if (head := _read(peer, _LENGTH.size)) is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {length} bytes was announced")
    body = _read(peer, length)
    return None if body is None else _decode(body)


def send_packet(peer: socket.socket, frame: Frame, *descriptors: int) -> None:
    """Send a frame over a socket that keeps packets apart. Raises `OSError`."""
    socket.send_fds(peer, [msgspec.msgpack.encode(frame)], descriptors)


def send_packet_at_once(peer: socket.socket, frame: Frame, *descriptors: int) -> bool:
    """Send a packet without waiting for the other end. Returns whether that was possible."""
    try:
        socket.send_fds(peer, [msgspec.msgpack.encode(frame)], descriptors, socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


def receive_packet(peer: socket.socket) -> tuple[Frame | None, list[int]]:
    """The next packet's frame, or None at the end, and the descriptors that came with it."""
    packet, descriptors, _, _ = socket.recv_fds(peer, _PACKET_BYTES, _MAX_PACKET_DESCRIPTORS)
    return (_decode(packet) if packet else None), descriptors


def _decode(body: bytes) -> Frame:
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadFrame(str(error)) from error


def _read(peer: socket.socket, length: int) -> bytes | None:
    read = bytearray()
    while len(read) < length:
        try:
            chunk = peer.recv(min(length - len(read), 1 << 20))
        except ConnectionResetError:
            return None
        if not chunk:
            return None
        read += chunk
    return bytes(read)
