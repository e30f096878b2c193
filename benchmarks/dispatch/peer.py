"""One run of a peer, in the peers' environment, with a durable Redis of its own."""

import os
import subprocess
from pathlib import Path

import msgspec

from benchmarks.deployment import new_cluster
from rollyard.codec import learnt
from rollyard.errors import LaunchError

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PEER_SECONDS = 180.0


class Answer(msgspec.Struct):
    jobs: int
    seconds: float


def jobs_per_second(peer: str, jobs: int) -> float:
    """The rate of the peer of this name, a module of `peers`. Raises `LaunchError`."""
    if not PYTHON.exists():
        raise LaunchError(f"{PYTHON} does not exist", fix="sh launch/environment.sh bench")
    with new_cluster() as cluster:
        command = [str(PYTHON), "-m", f"benchmarks.dispatch.peers.{peer}"]
        command += ["--jobs", str(jobs), "--redis-port", str(cluster.ports.redis)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=PEER_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"peer {peer} took more than {PEER_SECONDS:g} s") from error
    if done.returncode != 0:
        last_words = done.stderr.decode(errors="replace")[-1000:]
        raise LaunchError(f"peer {peer} ended with code {done.returncode}: {last_words}")
    answer = msgspec.json.decode(done.stdout.splitlines()[-1], type=learnt(Answer))
    return answer.jobs / answer.seconds
