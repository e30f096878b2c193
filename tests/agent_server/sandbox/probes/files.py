# ruff: noqa: E501 - a probe is a line
"""Attempts on the files of the machine. `{secret}` is a file of the host's, `{other}` the directory
of another sandbox."""

from tests.agent_server.sandbox.probes.probe import python, shell

# fmt: off
FILES = (
    shell("read a file of the host", "held cat {secret}"),
    shell("read it through process 1's root", "held cat /proc/1/root{secret}"),
    shell("read it through its own root", "held cat /proc/self/root{secret}"),
    shell("read it through process 1's directory", "held cat /proc/1/cwd/../..{secret}"),
    shell("climb out of the root", "held cat /workspace/../../../../../..{secret}"),
    shell("follow a link out", "ln -sf {secret} link; held cat link"),
    shell("follow a linked directory out", "ln -sfn /proc/1/root out; held cat out{secret}"),
    shell("link a file of the host hard", "held ln {secret} hard"),
    shell("move out of a directory that is moved", "mkdir -p a/b; cd a/b; mv ../b /tmp/; held cat ../../../..{secret}"),
    shell("list root's home", "held ls /root"),
    shell("list the homes", "held ls /home"),
    shell("read the accounts", "held cat /etc/passwd"),
    shell("read the password hashes", "held cat /etc/shadow"),
    shell("list another sandbox", "held ls {other}"),
    shell("list the host's temporary files", "held cat /tmp/{marker}"),
    shell("list the host's shared memory", "held cat /dev/shm/{marker}"),
    shell("list the kernel's objects", "held ls /sys/kernel"),
    shell("read the kernel's memory", "held head -c 1 /proc/kcore"),
    shell("set where cores go", "held bash -c 'echo x > /proc/sys/kernel/core_pattern'"),
    shell("pull the emergency lever", "held bash -c 'echo h > /proc/sysrq-trigger'"),
    shell("make a disk's device", "held mknod disk b 8 0"),
    shell("make the memory's device", "held mknod memory c 1 1"),
    shell("find a device of the host", "held ls /dev/kvm /dev/fuse /dev/vda /dev/mem"),
    shell("write among the programs", "held touch /usr/bin/new"),
    shell("overwrite the shell", "held bash -c 'echo x > /usr/bin/bash'"),
    shell("have a library loaded everywhere", "held touch /etc/ld.so.preload"),
    shell("make the root writable", "held mount -o remount,rw /"),
    shell("mount over a directory", "held mount --bind /workspace /usr"),
    shell("unmount its process table", "held umount /proc"),
    shell("become root by a set-user-id file", "cp /bin/bash own; chmod u+s own; held test $(./own -p -c 'echo $EUID') = 0"),
    shell("become root by su", "held su -c true </dev/null"),
    python("give a file a capability", "held(os.setxattr, '/workspace', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0))"),
    python("change its root", "held(os.chroot, '/workspace')"),
    python("open a file by its handle", "held(call, 304, 265, -100, ctypes.create_string_buffer(64), 0)"),
    python("keep a descriptor of the host", "for name in os.listdir('/proc/self/fd'):\n    held(open, f'/proc/self/fd/{name}/..{secret}')"),
)
# fmt: on
