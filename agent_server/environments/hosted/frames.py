"""What an agent server, its zygote and the process of an environment say to each other.

- Nothing is unpickled: a frame is a message in msgpack.
- The server asks an environment for `StartFrame`, `StepFrame` or `Grade`; before it answers, the
  environment may ask for any number of `RunFrame`s. They cross a stream, each frame behind its
  length in 4 bytes.
- The zygote has sockets of its own, which keep packets apart: nothing that an environment writes,
  or leaves half-written, gets between the zygote's words.
"""

import socket
import struct

import msgspec

from agent_server.environments.protocol import Needs, Observation
from agent_server.sandbox.protocol import CommandResult
from rollyard.messages import ChatMessage, Prompt

MAX_FRAME_BYTES = 64 << 20

_PACKET_BYTES = 1 << 16
_MAX_PACKET_DESCRIPTORS = 3
_LENGTH = struct.Struct("!I")


class Frame(msgspec.Struct, frozen=True, tag=True):
    """Base of all frames."""


class Load(Frame, frozen=True):
    """To the zygote, first of all: what to import, and what each child of it may use."""

    entry_points: tuple[tuple[str, str], ...]
    """Name and value of each."""
    data_bytes: int
    processes: int


class Bear(Frame, frozen=True):
    """Start a process of this environment. With it come the process's socket, the pipe for its
    output, and the socket over which the zygote tells of it."""

    name: str


class LoadedFrame(Frame, frozen=True):
    """The zygote's answer."""

    problem: str = ""
    """Why an environment cannot be imported; empty if all can."""
    needs: dict[str, Needs] = {}
    """Of each environment, by name."""


class Born(Frame, frozen=True):
    """The zygote's first word of a new process, whose descriptor comes with it."""


class NotBorn(Frame, frozen=True):
    reason: str


class Ended(Frame, frozen=True):
    """The zygote's last word: the process is gone, and all that it started."""

    status: int
    """As `os.waitpid` gives it."""


class StartFrame(Frame, frozen=True):
    prompt: Prompt


class StepFrame(Frame, frozen=True):
    response: str


class Grade(Frame, frozen=True):
    pass


class Opened(Frame, frozen=True):
    messages: tuple[ChatMessage, ...]


class Observed(Frame, frozen=True):
    observation: Observation


class Graded(Frame, frozen=True):
    reward: float


class Failed(Frame, frozen=True):
    reason: str
    unavailable: bool = False
    """What it needs of this server failed, not the environment."""


class RunFrame(Frame, frozen=True):
    """A command for the sandbox. In bytes, for what a policy writes need not be Unicode."""

    argv: tuple[bytes, ...]
    stdin: bytes
    deadline_seconds: float


class Ran(Frame, frozen=True):
    result: CommandResult


class SandboxFailed(Frame, frozen=True):
    reason: str


AnyFrame = (
    Load
    | Bear
    | LoadedFrame
    | Born
    | NotBorn
    | Ended
    | StartFrame
    | StepFrame
    | Grade
    | Opened
    | Observed
    | Graded
    | Failed
    | RunFrame
    | Ran
    | SandboxFailed
)

_DECODER: msgspec.msgpack.Decoder[AnyFrame] = msgspec.msgpack.Decoder(AnyFrame)


class BadFrame(Exception):
    """The other end does not keep to this protocol."""


def encode(frame: Frame) -> bytes:
    """The frame as it crosses the socket. Raises `BadFrame` for one that is too large, and
    `ValueError` for text that is not Unicode."""
    body = msgspec.msgpack.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise BadFrame(f"{len(body)} bytes are more than the {MAX_FRAME_BYTES} of a frame")
    return _LENGTH.pack(len(body)) + body


def send(peer: socket.socket, frame: Frame) -> None:
    """Raises `OSError` when the other end is gone, and whatever `encode` raises."""
    peer.sendall(encode(frame))


def receive(peer: socket.socket) -> AnyFrame | None:
    """The next frame, or None at the end, also where that cuts a frame off. Raises `BadFrame`."""
    if (head := _read(peer, _LENGTH.size)) is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {length} bytes was announced")
    body = _read(peer, length)
    return None if body is None else _decode(body)


def send_packet(peer: socket.socket, frame: Frame, *descriptors: int) -> None:
    """Over a socket that keeps packets apart, which needs no length. Raises `OSError`."""
    socket.send_fds(peer, [msgspec.msgpack.encode(frame)], descriptors)


def send_packet_at_once(peer: socket.socket, frame: Frame, *descriptors: int) -> bool:
    """Whether it could be sent without waiting for the other end."""
    try:
        socket.send_fds(peer, [msgspec.msgpack.encode(frame)], descriptors, socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


def receive_packet(peer: socket.socket) -> tuple[AnyFrame | None, list[int]]:
    """The next frame, or None at the end, and the descriptors that came with it."""
    packet, descriptors, _, _ = socket.recv_fds(peer, _PACKET_BYTES, _MAX_PACKET_DESCRIPTORS)
    return (_decode(packet) if packet else None), descriptors


def _decode(body: bytes) -> AnyFrame:
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
