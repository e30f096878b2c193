"""The sandboxes of a hosted environment, on the server's side.

- Number 0 is the attempt's own, which others close; the rest are fresh ones that came from it.
- A request that makes no sense fails the request, not the server.
"""

from agent_server.environments.hosted import frames
from agent_server.sandbox.protocol import FileRefused, Sandbox, SandboxUnavailable

_MAX_FILE_BYTES = frames.MAX_FRAME_BYTES - 1024


class Sandboxes:
    """The sandboxes by number."""

    def __init__(self, own: Sandbox) -> None:
        self._open = {0: own}
        self._opened = 0

    def answer(self, request: frames.SandboxRequest) -> frames.Frame:
        """Do what is asked of a sandbox."""
        sandbox = self._open.get(request.sandbox)
        if sandbox is None:
            return frames.Failed("the sandbox is closed")
        try:
            return self._answer(sandbox, request)
        except FileRefused as error:
            return frames.FileRefusedFrame(_unicode(str(error)))
        except SandboxUnavailable as error:
            return frames.Failed(str(error))

    def _answer(self, sandbox: Sandbox, request: frames.SandboxRequest) -> frames.Frame:
        match request:
            case frames.RunFrame(_, argv, stdin, seconds):
                words, text = tuple(map(_text, argv)), _text(stdin)
                return frames.Ran(sandbox.run(words, stdin=text, deadline_seconds=seconds))
            case frames.BashFrame(_, command, seconds):
                return frames.Ran(sandbox.bash(_text(command), deadline_seconds=seconds))
            case frames.WriteFrame(_, path, content):
                sandbox.write(_text(path), content)
                return frames.FileFrame()
            case frames.ReadFrame(_, path, most):
                content = sandbox.read(_text(path), most_bytes=min(most, _MAX_FILE_BYTES))
                return frames.FileFrame(content)
            case frames.FreshFrame():
                self._opened += 1
                self._open[self._opened] = sandbox.fresh()
                return frames.Numbered(self._opened)
            case frames.CloseFrame(number):
                if number:
                    self._open.pop(number).close()
                return frames.Numbered(number)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


def _unicode(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
