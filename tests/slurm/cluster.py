"""A Slurm cluster of four nodes on this machine: Debian's daemons, their state in one directory.

- Nodes gpu1, gpu2, cpu1 and cpu2, each with a loopback address of its own, so that all may use the
  same ports. GPUs are plain files.
- `lose` ends a node as a power cut would; `recover` starts its daemon again. One that is `cut_off`
  is silent, and goes on later as if nothing had been.
- `stop` ends all daemons, and whatever jobs have left.
"""

import contextlib
import getpass
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from launch.free_ports import free_range
from launch.processes import Started, start_process
from tests.waiting import until

NODES = ("gpu1", "gpu2", "cpu1", "cpu2")
GPUS = 2
"""GPUs of each node that has some."""
DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol")

_CONF = """\
ClusterName=emulated
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=20
KillWait=15
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=gpu[1-2] MaxTime=INFINITE State=UP
PartitionName=cpu Nodes=cpu[1-2] MaxTime=INFINITE State=UP
PartitionName=batch Nodes=gpu[1-2],cpu[1-2] Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """The daemons, and the commands that talk with them. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf")}
        self._daemons: dict[str, Started] = {}

    def __enter__(self) -> "SlurmCluster":
        if missing := [name for name in DAEMONS if shutil.which(name, path=_path()) is None]:
            raise AssertionError(
                f"these tests need Slurm, and there is no {', '.join(missing)}; "
                "as root: apt-get install --no-install-recommends slurm-wlm munge shellcheck"
            )
        self._configure()
        self._start("munged", *self._munged())
        until("munged listens", (self.directory / "munge.socket").exists)
        self._start("slurmctld", "slurmctld", "-D", "-c", "-i")
        for node in NODES:
            self.recover(node)
        until("all nodes are idle", lambda: self.states() == {"idle"})
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(AssertionError):
            self.end_all_jobs()
        for daemon in self._daemons.values():
            daemon.kill()

    def command(self, *words: str, **variables: str) -> str:
        """What a command of Slurm, or of its users, prints. It must succeed."""
        done = subprocess.run(
            words,
            env={**self.environment, "PATH": _path(), **variables},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, (
            f"{words} ended with {done.returncode}: {done.stderr}{done.stdout}"
        )
        return done.stdout

    def end_all_jobs(self) -> None:
        """End what still waits or runs, and all that it has left."""
        self.command("scancel", "--full", "--user", getpass.getuser())
        until("all jobs are gone", lambda: not self.jobs())
        for process in self.left_behind():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def states(self) -> set[str]:
        """What the nodes are."""
        return set(self.command("sinfo", "--noheader", "--Node", "--format=%t").split())

    def state_of(self, node: str) -> str:
        return self.command("sinfo", "--noheader", f"--nodes={node}", "--format=%t").split()[0]

    def jobs(self) -> Mapping[str, str]:
        """Job id -> state, of all that is not over."""
        lines = self.command("squeue", "--noheader", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def lose(self, node: str) -> None:
        """End a node's daemon and all that its jobs run there, at once."""
        self._daemons.pop(f"slurmd-{node}").kill()
        for process in self._running_on(node):
            with contextlib.suppress(psutil.Error):
                holder = process.parent()
                process.kill()
                if holder is not None and holder.name().startswith("slurmstepd"):
                    holder.kill()

    @contextlib.contextmanager
    def cut_off(self, node: str) -> Iterator[None]:
        """A block in which nothing that jobs run on the node sends or takes anything; Slurm does
        not notice."""
        for process in self._running_on(node):
            with contextlib.suppress(psutil.Error):
                process.suspend()
        try:
            yield
        finally:
            for process in self._running_on(node):
                with contextlib.suppress(psutil.Error):
                    process.resume()

    def _running_on(self, node: str) -> list[psutil.Process]:
        """What jobs run on the node, without Slurm's own."""
        return [process for process in self.left_behind() if _node_of(process) == node]

    def has(self, node: str) -> bool:
        """Whether the node's daemon runs."""
        return f"slurmd-{node}" in self._daemons

    def recover(self, node: str) -> None:
        """Start a node's daemon, which finds nothing of what ran there."""
        self._start(f"slurmd-{node}", "slurmd", "-D", "-N", node)

    def left_behind(self) -> list[psutil.Process]:
        """Processes of jobs of this cluster, and of its step daemons."""
        ours = {daemon.process.pid for daemon in self._daemons.values()}
        return [
            process
            for process in psutil.process_iter()
            if process.pid not in ours and _belongs(process, self.directory)
        ]

    def _configure(self) -> None:
        for name in ("state", "dev", *(f"spool-{node}" for node in NODES)):
            (self.directory / name).mkdir(parents=True)
        for number in range(GPUS):
            (self.directory / "dev" / f"gpu{number}").touch()
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        ports = free_range(1 + len(NODES))
        lines = [_node_line(node, i, ports[1 + i]) for i, node in enumerate(NODES)]
        values = {"directory": self.directory, "user": getpass.getuser(), "controller": ports[0]}
        conf = _CONF.format(nodes="\n".join(lines), **values)
        (self.directory / "slurm.conf").write_text(conf)
        files = f"File={self.directory}/dev/gpu[0-{GPUS - 1}]"
        (self.directory / "gres.conf").write_text(f"NodeName=gpu[1-2] Name=gpu {files}\n")

    def _munged(self) -> Sequence[str]:
        files = [
            f"--{each}-file={self.directory}/munge.{each}" for each in ("key", "pid", "log", "seed")
        ]
        return (
            "munged",
            "--foreground",
            "--force",
            f"--socket={self.directory}/munge.socket",
            *files,
        )

    def _start(self, name: str, *command: str) -> None:
        # Daemons are found where Debian puts them, also by users whose PATH lacks that.
        found = ("env", f"PATH={_path()}", f"SLURM_CONF={self.directory / 'slurm.conf'}")
        self._daemons[name] = start_process(
            name, (*found, *command), self.directory / f"{name}.out"
        )


def address_of(node: str) -> str:
    return f"127.0.0.{11 + NODES.index(node)}"


def _node_line(node: str, index: int, port: int) -> str:
    gres = f" Gres=gpu:{GPUS}" if node.startswith("gpu") else ""
    return (
        f"NodeName={node} NodeHostname=localhost NodeAddr={address_of(node)} Port={port} "
        f"CPUs=4 RealMemory=2000{gres} State=UNKNOWN"
    )


def _node_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("SLURMD_NODENAME", "")
    return ""


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _belongs(process: psutil.Process, directory: Path) -> bool:
    """Whether a process is of a job of the cluster in `directory`."""
    with contextlib.suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        variables = process.environ()
        return variables.get("SLURM_CONF") == str(directory / "slurm.conf") and (
            "SLURM_JOB_ID" in variables or process.name().startswith("slurmstepd")
        )
    return False
