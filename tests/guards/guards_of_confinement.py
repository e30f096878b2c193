"""The guards that keep a sandbox closed and within its totals, and the machine clean behind it."""

from tests.guards.guard import Guard

PROBES = "tests/agent_server/sandbox/probes/test_probes.py"
WATCHER = "tests/agent_server/sandbox/test_watcher.py"
LEDGER = "tests/agent_server/sandbox/test_ledger.py"
NETWORK = "tests/agent_server/sandbox/test_network.py"

GUARDS_OF_CONFINEMENT = (
    Guard(
        "commands run under the filter of system calls",
        "agent_server/sandbox/command.py",
        '        *("--seccomp", str(FILTER)),\n',
        "",
        PROBES,
    ),
    Guard(
        "calls of 32-bit programs do not exist",
        "agent_server/sandbox/seccomp.py",
        "    yield from _unless_equal(_ARCHITECTURES[machine], _refuse(_NO_SUCH_CALL))\n",
        "",
        PROBES,
    ),
    Guard(
        "a process is in its control group before it begins",
        "agent_server/sandbox/command.py",
        '  echo 0 > "$group/cgroup.procs" || exit 125\n',
        "  :\n",
        "tests/agent_server/sandbox/test_cgroups.py",
    ),
    Guard(
        "a sandbox that exceeds a total is stopped where the kernel does not",
        "agent_server/sandbox/watcher.py",
        "                sandbox.overrun(reason)\n",
        "",
        WATCHER,
    ),
    Guard(
        "memory that no process maps is counted",
        "agent_server/sandbox/process_table.py",
        "                memory_files.update(_memory_files(process))\n",
        "",
        WATCHER,
    ),
    Guard(
        "the processes of a dead server are reaped",
        "agent_server/sandbox/removal.py",
        "    if reason := why_not_dead(home):\n        return reason\n",
        "",
        LEDGER,
    ),
    Guard(
        "the control groups of a dead server are reaped",
        "agent_server/sandbox/removal.py",
        "        for each in (*_below(group), group):\n",
        "        for each in ():\n",
        LEDGER,
    ),
    Guard(
        "an image is looked for below the operator's directory alone",
        "agent_server/sandbox/roots.py",
        ' and ".." not in found.parts',
        "",
        "tests/agent_server/sandbox/test_roots.py",
    ),
    Guard(
        "a proxy connects to listed hosts alone",
        "agent_server/sandbox/proxy.py",
        "        if host.lower() not in self._hosts:\n",
        "        if False:\n",
        NETWORK,
    ),
    Guard(
        "a listed name leads to no private network",
        "agent_server/sandbox/proxy.py",
        " and not ipaddress.ip_address(address[0]).is_global",
        " and False",
        "tests/agent_server/sandbox/test_proxy.py",
    ),
)
