# ruff: noqa: E501 - a probe is a line
"""Attempts to use up the machine, each in a sandbox of its own with tight totals."""

from tests.agent_server.sandbox.probes.probe import python, shell

# fmt: off
EXHAUSTION = (
    shell("a fork bomb", "bomb() { bomb | bomb & }; bomb; wait"),
    python("processes without end", "while True:\n    try:\n        if os.fork() == 0:\n            os.read(0, 1) or __import__('time').sleep(60)\n    except OSError:\n        break"),
    python("threads without end", "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,)).start()"),
    shell("memory of one process", "head -c 900M /dev/zero | tail -c 900M | wc -c"),
    shell("memory of many processes", "for each in 1 2 3 4 5 6 7 8 9 10; do head -c 60M /dev/zero | tail -c 60M | wc -c & done; wait"),
    python("memory that no process maps", "while True:\n    file = os.memfd_create('x')\n    os.set_inheritable(file, True)\n    os.write(file, b'x' * (8 << 20))"),
    python("memory of System V", "shmget = 29 if x86 else 194\nshmat = 30 if x86 else 196\nwhile True:\n    at = call(shmat, shmat, call(shmget, shmget, 0, 32 << 20, 0o1600), 0, 0)\n    ctypes.memset(at, 1, 32 << 20)"),
    python("memory shared by children", "import mmap, time\nwhile True:\n    page = mmap.mmap(-1, 16 << 20)\n    page.write(b'x' * (16 << 20))\n    os.fork() or time.sleep(60)"),
    shell("a full /tmp", "for each in {1..40}; do head -c 4M /dev/zero > /tmp/$each || exit; done"),
    shell("a full /dev/shm", "for each in {1..40}; do head -c 4M /dev/zero > /dev/shm/$each || exit; done"),
    shell("a full workspace", "for each in {1..60}; do head -c 4M /dev/zero > $each || exit; done"),
    python("a full workspace without names", "while True:\n    file = open('x', 'wb')\n    os.unlink('x')\n    os.dup(file.fileno())\n    file.write(b'x' * (1 << 20))\n    file.flush()"),
    python("files without end", "for each in range(10 ** 6):\n    open(str(each), 'w').close()"),
    python("files without end in /tmp", "for each in range(10 ** 6):\n    open('/tmp/' + str(each), 'w').close()"),
    python("directories in directories", "while True:\n    os.mkdir('d')\n    os.chdir('d')"),
    python("links without end", "open('a', 'w').close()\nfor each in range(10 ** 6):\n    os.link('a', f'l{each}')"),
    shell("a file with a hole of a petabyte", "truncate -s 1P hole"),
    shell("output without end", "yes"),
    shell("output without lines", "cat /dev/zero"),
    python("descriptors without end", "held(lambda: [os.open('/dev/null', 0) for each in range(10 ** 6)])"),
    python("pipes that are full", "while True:\n    reader, writer = os.pipe()\n    os.set_blocking(writer, False)\n    os.write(writer, b'x' * 65536)"),
    shell("processors", "for each in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"),
    python("children that nobody waits for", "import time\nfor each in range(30):\n    os.fork() or os._exit(0)\ntime.sleep(60)"),
    shell("daemons that sleep", "for each in 1 2 3 4 5; do (setsid setsid sleep 600 </dev/null >/dev/null 2>&1 &); done"),
    shell("a stop of itself", "kill -STOP $$"),
    shell("a kill of everything", "kill -9 -1"),
)
# fmt: on
