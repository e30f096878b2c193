"""What a sandbox shows as its root: the files of this machine, read-only, or a copy-on-write image.

- An image is a directory with the files of a container (`docker export` unpacks into one). Nothing
  of it is copied: what a sandbox writes lies in memory, over it, and ends with the sandbox.
- A tool environment is a directory that is shown read-only at `/opt/rollyard/tools/NAME`.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from agent_server.sandbox.command import PATH
from agent_server.sandbox.machine import MACHINE, TOOLS
from agent_server.sandbox.protocol import SandboxNeeds

_SHIPPED = Path(__file__).parents[2] / ".venv-tools"
"""Where `make environments` makes the tool environments that Rollyard brings."""

_MERGED_DIRECTORIES = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_CERTIFICATES = "/etc/ssl/certs"
_CONFIGURATION = ("/etc/ld.so.cache", "/etc/alternatives")


class RootSources(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of this machine from which roots are made."""

    images: Path | None = None
    """Directory in which every image has a directory of its own."""
    tool_environments: Path | None = None
    """Directory in which every tool environment has one; those of Rollyard need none here."""

    def missing(self, needs: SandboxNeeds) -> Iterator[str]:
        """The image, tool environments and programs that are not here."""
        if needs.image:
            yield from self._why_no_image(needs.image)
        for name in needs.tools:
            if (found := self._tools(name)) is None:
                yield f"the tool environment {name!r} in the directory of --tool-environments"
            elif not _is_passable(found):
                yield f"the tool environment {name!r} where every user can reach it, not in {found}"
        for program in () if needs.image else needs.programs:
            if shutil.which(program, path=PATH) is None:
                yield f"the program {program!r} in {PATH}"

    def options(self, needs: SandboxNeeds, own: Sequence[str]) -> list[str]:
        """The options of bwrap that show this root, with what the sandbox has of its own over
        it. Nothing may be missing."""
        image = self.image(needs)
        shown = _machine() if image is None else ["--overlay-src", str(image), "--tmp-overlay", "/"]
        if needs.network and image is None:
            shown += ["--ro-bind-try", _CERTIFICATES, _CERTIFICATES]
        for source, place in self.tools(needs):
            shown += ["--ro-bind", str(source), place]
        return [*shown, *own, *([] if needs.image else ["--remount-ro", "/"])]

    def image(self, needs: SandboxNeeds) -> Path | None:
        """The directory of the image, if one is needed."""
        return _within(self.images, needs.image) if needs.image else None

    def tools(self, needs: SandboxNeeds) -> list[tuple[Path, str]]:
        """The directories of the tool environments, and where they are inside; beside an image also
        this machine's /usr, which has their Python."""
        found = ((self._tools(name), f"{TOOLS}/{name}") for name in needs.tools)
        shown = [(source, place) for source, place in found if source is not None]
        return [*shown, (Path("/usr"), MACHINE)] if needs.image and shown else shown

    def python(self, name: str) -> Path:
        """The Python of the tool environment, which may not be there."""
        return (self._tools(name) or _SHIPPED / name) / "bin" / "python"

    def _why_no_image(self, name: str) -> Iterator[str]:
        found = _within(self.images, name)
        if found is None or not os.path.lexists(found / "bin"):
            yield f"the image {name!r} in the directory of --images"
        elif not _is_passable(found):
            yield f"the image {name!r} where every user can reach it, not in {found}"

    def _tools(self, name: str) -> Path | None:
        return _within(self.tool_environments, name) or _within(_SHIPPED, name)


def _is_passable(directory: Path) -> bool:
    """True if the user of sandboxes can reach the directory. A server that is root makes them as an
    unprivileged user; any other makes them as itself."""
    above = (directory, *directory.parents)
    return os.geteuid() != 0 or all(each.stat().st_mode & 0o001 for each in above)


def _within(directory: Path | None, name: str) -> Path | None:
    """The directory `name` in `directory`, and nowhere else."""
    if directory is None or not name or name in (".", ".."):
        return None
    found = directory / name
    inside = found.absolute().is_relative_to(directory.absolute()) and ".." not in found.parts
    try:
        return found.resolve() if inside and found.is_dir() else None
    except OSError:  # a row may give a name that is too long for any file
        return None


def _machine() -> list[str]:
    """The programs and libraries of this machine, and nothing else of it."""
    merged = [
        option
        for directory in map(Path, _MERGED_DIRECTORIES)
        if directory.exists()
        for option in _show(directory)
    ]
    configuration = [option for file in _CONFIGURATION for option in ("--ro-bind-try", file, file)]
    return ["--ro-bind", "/usr", "/usr", *merged, *configuration]


def _show(directory: Path) -> list[str]:
    """The options that show `directory` inside: as a link where the distribution has merged it into
    /usr, else as a mount."""
    if directory.is_symlink():
        return ["--symlink", str(directory.readlink()), str(directory)]
    return ["--ro-bind", str(directory), str(directory)]
