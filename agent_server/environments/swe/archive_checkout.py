"""A repository from the operator's archive of it, on the programs of this machine."""

from agent_server.environments.swe.checkout import TRACKED, Checkout
from agent_server.sandbox.protocol import WORKSPACE, Sandbox

_ARCHIVE = f"{WORKSPACE}/.base.tar.gz"

_UNPACK = """
set -e
mkdir -p "$1"
tar --extract --gzip --file "$2" --directory "$1" --strip-components 1 --no-same-owner
rm "$2"
printf './\\0' > "$3"
"""


class ArchiveCheckout(Checkout):
    """The files of `archive`, some of which the repository may ignore: a source release contains
    such files."""

    python = "/opt/rollyard/tools/pytest/bin/python"

    def __init__(self, sandbox: Sandbox, directory: str, archive: bytes) -> None:
        super().__init__(sandbox, directory)
        sandbox.write(_ARCHIVE, archive)
        self._must("unpack the repository", _UNPACK, directory, _ARCHIVE, TRACKED)
