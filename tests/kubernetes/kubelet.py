"""A stand-in for kubelets, which runs the pods of manifests as processes of this machine.

It is called in a user namespace, a network and a process table of its own. In it
- each pod has a network of its own, with one address on a bridge, and the names of all in the DNS
  are lines of its /etc/hosts;
- each container has a process table of its own, the pod's volumes where its manifest says, and the
  command line, the variables and the user of its manifest; the image is this machine, and its entry
  point is the command line of this checkout;
- probes come from the bridge, as a machine's kubelet would send them.

Network policies are not enforced, and /tmp stays that of this machine: the checkout may be there.
It takes calls as lines of JSON, and answers each with one.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import requests
import yaml

from tests.waiting import until

ROOT = Path(__file__).parents[2]
ENTRY_POINT = (sys.executable, "-m", "launch.cli")
USER = 1000
CONFINED = ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
AS_USER = {
    True: (*CONFINED, f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"),
    False: ("unshare", "--user", f"--map-user={USER}", f"--map-group={USER}", *CONFINED, "--"),
}
"""How a container gets its user: root has many users here, and everybody else just one."""
READY_SECONDS = 180.0
BRIDGE = "10.77.0.1"
START = """\
set -e
mount --bind "$1/etc" /etc
mount --bind "$1/hosts" /etc/hosts
mount -t tmpfs tmpfs /var/lib
while [ "$2" != -- ]; do
    mkdir -p "$3"
    mount --bind "$2" "$3"
    shift 2
done
shift 2
cd /
exec "$@"
"""
Yaml = dict[str, Any]


class Kubelet:
    """Owns the pods that run. `directory` is for their volumes, logs and hosts file."""

    def __init__(self, manifests: Path, directory: Path) -> None:
        self._objects: list[Yaml] = list(yaml.safe_load_all(manifests.read_text()))
        self._directory = directory
        self._addresses: dict[str, str] = {}
        self._numbers = itertools.count(2)
        self._networks: dict[str, subprocess.Popen[bytes]] = {}
        self._containers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        if has_many_users():
            show_everyone(directory / "shown")
        shutil.copytree("/etc", directory / "etc", symlinks=True, ignore=_unreadable)
        (directory / "etc" / "rollyard").mkdir()
        (directory / "hosts").write_text("127.0.0.1 localhost\n")
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "pods", "type", "bridge")
        _ip("addr", "add", f"{BRIDGE}/24", "dev", "pods")
        _ip("link", "set", "pods", "up")

    def pods(self) -> list[str]:
        """The pods of all StatefulSets."""
        return [
            f"{each['metadata']['name']}-{i}"
            for each in self._of("StatefulSet")
            for i in range(each["spec"]["replicas"])
        ]

    def start(self, *pods: str) -> None:
        """Start pods, each at an address that no pod had before."""
        for pod in pods:
            self._give_address(pod, self._set_of(pod))
        for pod in pods:
            spec = self._set_of(pod)["spec"]["template"]["spec"]
            for container in (*spec["initContainers"], *spec["containers"]):
                self._start(pod, spec, container)

    def wait_until_ready(self, *pods: str) -> None:
        for pod in pods:
            probe = self._node(pod)["readinessProbe"]
            until(f"{pod} is ready", lambda: self._answers(pod, probe), READY_SECONDS)  # noqa: B023

    def alive(self, *pods: str) -> bool:
        """Whether all liveness probes succeed."""
        return all(self._answers(pod, self._node(pod)["livenessProbe"]) for pod in pods)

    def run(self, name: str, spec: Yaml) -> str:
        """Run a pod of one container to its end. Returns what it printed."""
        self._give_address(name, None)
        (container,) = spec["containers"]
        started = self._start(name, {**spec, "volumes": []}, container)
        assert started.wait(READY_SECONDS) == 0, self.log(name, container["name"])
        self._forget(name)
        return self.log(name, container["name"])

    def kill(self, pod: str) -> None:
        """End a pod and its network as the loss of its machine would."""
        for (name, _), container in self._containers.items():
            if name == pod:
                _first_process(container).kill()
                container.wait(10)
        self._forget(pod)

    def stop(self, *pods: str) -> float:
        """Stop pods as their deletion would, all at once; sidecars after the others. Returns the
        seconds that it took. No container may have to be killed."""
        began = time.monotonic()
        grace = max(
            self._set_of(pod)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            for pod in pods
        )
        for sidecars in (False, True):
            those = {
                key: each
                for key, each in self._containers.items()
                if key[0] in pods and (key[1] == "logs") is sidecars
            }
            for container in those.values():
                if container.poll() is None:
                    _first_process(container).send_signal(signal.SIGTERM)
            for key, container in those.items():
                left = began + grace - time.monotonic()
                until(f"{key} ended", lambda: container.poll() is not None, left)  # noqa: B023
        for pod in pods:
            self._forget(pod)
        return time.monotonic() - began

    def log(self, pod: str, container: str = "node") -> str:
        """What a container has printed, in all its lives."""
        path = self._directory / f"{pod}.{container}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> list[Path]:
        return sorted(self._directory.glob("*.log"))

    def left(self) -> list[str]:
        """Everything that runs here, without us."""
        return [
            " ".join(process.cmdline()) or process.name()
            for process in psutil.process_iter()
            if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
        ]

    def _of(self, kind: str) -> list[Yaml]:
        return [each for each in self._objects if each["kind"] == kind]

    def _named(self, kind: str, name: str) -> Yaml:
        (found,) = (each for each in self._of(kind) if each["metadata"]["name"] == name)
        return found

    def _set_of(self, pod: str) -> Yaml:
        return self._named("StatefulSet", pod.rpartition("-")[0])

    def _node(self, pod: str) -> Yaml:
        node: Yaml = self._set_of(pod)["spec"]["template"]["spec"]["containers"][0]
        return node

    def _give_address(self, pod: str, owner: Yaml | None) -> None:
        address = f"10.77.0.{next(self._numbers)}"
        self._addresses[pod] = address
        network = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._networks[pod] = network
        until("the pod has a network", lambda: _has_own_network(network.pid))
        end = f"veth{address.rpartition('.')[2]}"
        _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(network.pid))
        _ip("link", "set", end, "master", "pods", "up")
        inside = ("nsenter", "--target", str(network.pid), "--net")
        _ip("addr", "add", f"{address}/24", "dev", "eth0", before=inside)
        _ip("link", "set", "eth0", "up", before=inside)
        _ip("link", "set", "lo", "up", before=inside)
        self._write_hosts()

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost\n"]
        for pod, address in self._addresses.items():
            lines.append(f"{address} {self._dns_name(pod)} {pod}\n")
        with (self._directory / "hosts").open("r+") as hosts:  # the file that pods have mounted
            hosts.write("".join(lines))
            hosts.truncate()

    def _dns_name(self, pod: str) -> str:
        sets = [each["metadata"]["name"] for each in self._of("StatefulSet")]
        if pod.rpartition("-")[0] not in sets:
            return f"{pod}.example"
        owner = self._set_of(pod)
        service = self._named("Service", owner["spec"]["serviceName"])["metadata"]
        return f"{pod}.{service['name']}.{service['namespace']}.svc.cluster.local"

    def _start(self, pod: str, spec: Yaml, container: Yaml) -> "subprocess.Popen[bytes]":
        variables = self._variables(pod, container)
        words = [*(container.get("command") or ENTRY_POINT), *container.get("args", ())]
        command = [_expanded(word, variables) for word in words]
        mounts = [
            word
            for mount in container.get("volumeMounts", ())
            if mount["mountPath"] not in ("/tmp", "/dev/shm")
            for word in (self._volume(pod, spec, mount["name"]), mount["mountPath"])
        ]
        with (self._directory / f"{pod}.{container['name']}.log").open("ab") as log:
            started = subprocess.Popen(
                [
                    *("nsenter", "--target", str(self._networks[pod].pid), "--net"),
                    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("bash", "-c", START, "start", str(self._directory), *mounts, "--"),
                    *AS_USER[has_many_users()],
                    *command,
                ],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._containers[pod, container["name"]] = started
        return started

    def _variables(self, pod: str, container: Yaml) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            found |= self._named("ConfigMap", source["configMapRef"]["name"])["data"]
        for each in container.get("env", ()):
            value = each.get("valueFrom", {})
            if "fieldRef" in value:
                assert value["fieldRef"] == {"fieldPath": "metadata.name"}
                found[each["name"]] = pod
            elif "secretKeyRef" in value:
                key = value["secretKeyRef"]
                found[each["name"]] = self._named("Secret", key["name"])["stringData"][key["key"]]
            else:
                found[each["name"]] = each["value"]
        return found

    def _volume(self, pod: str, spec: Yaml, name: str) -> str:
        directory = self._directory / "volumes" / pod / name
        made = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        named = [each for each in spec["volumes"] if each["name"] == name]
        if made:
            directory.chmod(0o2775)
            lend(directory)
        if made and named and "projected" in named[0]:
            for source in named[0]["projected"]["sources"]:
                self._fill(directory, source, named[0]["projected"]["defaultMode"])
        return str(directory)

    def _fill(self, directory: Path, source: Yaml, mode: int) -> None:
        ((kind, wanted),) = source.items()
        found = {"configMap": ("ConfigMap", "data"), "secret": ("Secret", "stringData")}[kind]
        data = self._named(found[0], wanted["name"])[found[1]]
        for item in wanted["items"]:
            path = directory / item["path"]
            path.write_text(data[item["key"]])
            path.chmod(mode)
            lend(path)

    def _answers(self, pod: str, probe: Yaml) -> bool:
        ports = {port["name"]: port["containerPort"] for port in self._node(pod)["ports"]}
        get = probe["httpGet"]
        url = f"http://{self._addresses[pod]}:{ports[get['port']]}{get['path']}"
        try:
            return requests.get(url, timeout=probe["timeoutSeconds"]).status_code == 200
        except requests.RequestException:
            return False

    def _forget(self, pod: str) -> None:
        """Remove a pod with what ends with it: its network, and volumes that are not claimed."""
        for key in [key for key in self._containers if key[0] == pod]:
            del self._containers[key]
        network = self._networks.pop(pod)
        network.kill()
        network.wait(10)
        for volume in (self._directory / "volumes" / pod).glob("*"):
            if volume.name != "queues":
                shutil.rmtree(volume)


def has_many_users() -> bool:
    """Whether users beside root are known here."""
    return int(Path("/proc/self/uid_map").read_text().split()[2]) > 1


def lend(path: Path) -> None:
    """Give the user's group what it may do, as `fsGroup` does."""
    if has_many_users():
        os.chown(path, 0, USER)


def show_everyone(aside: Path) -> None:
    """Let all users find Python and the checkout, which may be in root's home."""
    for number, needed in enumerate(dict.fromkeys((sys.base_prefix, sys.prefix, str(ROOT)))):
        above = [*reversed(Path(needed).parents)]
        hidden = next((each for each in above if not each.stat().st_mode & 0o001), None)
        if hidden is None:
            continue
        kept = aside / str(number)
        kept.mkdir(parents=True)
        _mount("--rbind", needed, str(kept))
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(hidden))
        Path(needed).mkdir(parents=True)
        _mount("--rbind", str(kept), needed)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _expanded(word: str, variables: dict[str, str]) -> str:
    for name, value in variables.items():
        word = word.replace(f"$({name})", value)
    return word


def _unreadable(directory: str, names: list[str]) -> list[str]:
    paths = [Path(directory, name) for name in names]
    return [path.name for path in paths if path.exists() and not os.access(path, os.R_OK)]


def _has_own_network(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()


def _ip(*words: str, before: tuple[str, ...] = ()) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(
        [*before, "env", f"PATH={path}", "ip", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def _first_process(container: "subprocess.Popen[bytes]") -> psutil.Process:
    """The first of a container's own process table, with which all others end."""
    return psutil.Process(container.pid).children()[0]


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def main() -> None:
    kubelet = Kubelet(Path(sys.argv[1]), Path(sys.argv[2]))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"answer": getattr(kubelet, name)(*arguments)}
        except BaseException as error:  # such as pytest's own, of what did not happen in time
            logs = "".join(f"==> {each.name} <==\n{_end(each)}" for each in kubelet.logs())
            answer = {"error": f"{type(error).__name__}: {error}\n{logs}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
