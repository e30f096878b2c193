"""The totals that all processes of one sandbox may use together, beside the limits of each."""

import msgspec

from rollyard.messages import check


class SandboxTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandbox may use at once."""

    memory_bytes: int = 2 << 30
    """Memory of its processes and of its files, all of which are in memory."""
    processes: int = 256
    """Processes and threads."""
    cpus: float = 2.0
    """Processor seconds a second."""
    disk_bytes: int = 1 << 30
    """Files in its workspace, which count as memory too."""
    inodes: int = 65_536
    """Number of files and directories."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            check(value > 0, f"sandbox total {name} must be positive, got {value}")

    @property
    def too_much_memory(self) -> str:
        return f"the sandbox used more than {self.memory_bytes >> 20} MiB of memory"

    @property
    def too_many_processes(self) -> str:
        return f"the sandbox had more than {self.processes} processes"

    @property
    def too_many_files(self) -> str:
        return f"the sandbox had more than {self.inodes} files"
