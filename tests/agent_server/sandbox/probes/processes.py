# ruff: noqa: E501 - a probe is a line
"""Attempts on processes, keys and privileges. `{pid}` is a process of the host's, `{marker}` a word
in its command line and its environment, and in a command of another sandbox."""

from tests.agent_server.sandbox.probes.probe import python, shell

_SIGNALS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
sent = 0
while sent < 4096 and libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p(1)) == 0:
    sent += 1
print("ESCAPED" if sent == 4096 else "HELD")
"""

# fmt: off
PROCESSES = (
    shell("see a process outside", "held grep -l '{start}[{end}]' /proc/[0-9]*/cmdline"),
    shell("read an environment outside", "held grep -l '{start}[{end}]' /proc/[0-9]*/environ"),
    python("pile up the signals that all sandboxes share", _SIGNALS),
    shell("kill a process outside", "held kill -9 {pid}"),
    shell("raise its priority", "held test $(nice -n -5 nice 2>/dev/null) -lt $(nice)"),
    shell("lift a limit", "held bash -c 'ulimit -v unlimited'"),
    shell("spare itself from the memory killer", "held bash -c 'echo -1000 > /proc/self/oom_score_adj'"),
    shell("make a user namespace", "held unshare -Ur true"),
    shell("make a mount namespace", "held unshare -m true"),
    shell("run without the filter of calls", "held grep -q 'Seccomp:.0' /proc/self/status"),
    shell("run with new privileges", "held grep -q 'NoNewPrivs:.0' /proc/self/status"),
    shell("have a capability", "held grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb):.0*[1-9a-f]' /proc/self/status"),
    shell("find the key of the host", "held grep {marker} /proc/keys"),
    python("trace its first process", "held(call, 101, 117, 16, 1, 0, 0)"),
    python("have itself traced", "held(call, 101, 117, 0, 0, 0, 0)"),
    python("read another's memory", "held(call, 310, 270, 1, 0, 0, 0, 0, 0)"),
    python("write another's memory", "held(open, '/proc/{pid}/mem', 'r+b')"),
    python("take another's descriptor", "held(call, 438, 438, os.pidfd_open(1), 0, 0)"),
    python("compare another's memory", "held(call, 312, 272, 1, os.getpid(), 1, 0, 0)"),
    python("read its session's keys", "held(call, 250, 219, 11, -3, 0, 0)"),
    python("join a session of keys", "held(call, 250, 219, 1, 0)"),
    python("leave a key for others", "held(call, 248, 217, b'user', b'left', b'value', 5, -4)"),
    python("ask for a key", "held(call, 249, 218, b'user', b'{marker}', 0, -3)"),
    python("enter the namespaces of process 1", "held(call, 308, 268, os.open('/proc/1/ns/mnt', 0), 0)"),
    python("fork into a user namespace", "held(call, 56, 220, 0x10000011, 0, 0, 0, 0)"),
    python("fork by the newer call", "held(call, 435, 435, struct.pack('<8Q', 0x10000000, *[0] * 7), 64)"),
    python("become root", "held(os.setresuid, 0, 0, 0)"),
    python("choose its groups", "held(os.setgroups, [0])"),
    python("run in real time", "held(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))"),
    python("type into the terminal", "import fcntl, pty\nmaster, slave = os.openpty()\nheld(fcntl.ioctl, slave, 0x5412, b'x')"),
)
# fmt: on
