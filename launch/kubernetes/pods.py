"""The pods of a fleet, as pure functions of its recipe.

- The node runs in one container as everywhere: `rollyard node` starts its processes in their order,
  starts again what dies, and stops them in their order. A sidecar prints their logs, and ends last.
- Nothing runs as root. Pods with agent servers have users of their own and an unmasked /proc,
  without which no sandbox can be made inside; the head has neither.
"""

import math
from collections.abc import Sequence
from typing import Any

from launch.fleet import FLEET, REDIS_PASSWORD, TOKENS, FleetPlan
from launch.kubernetes.recipe import CPU, DIRECTORY, GPU, HEAD, QUEUES, SOURCE, TLS, KubernetesFleet
from launch.local import LOGS
from launch.node_processes import processes_of
from launch.process_spec import ProcessSpec
from launch.processes import STOP_SECONDS

Yaml = dict[str, Any]
"""A part of a manifest."""

USER = 1000
"""The user of deploy/Containerfile."""
GRACE_SECONDS = math.ceil(6 * STOP_SECONDS)
"""Time for a pod to stop: four levels one after the other, then whatever is left."""
PROBE_SECONDS = 5
DEAD_SECONDS = 300
"""A server that does not answer for so long, though its node starts it again, takes its pod with
it."""
_FOLLOW = "trap 'kill $!' TERM; tail -n +1 -F \"$@\" 2>/dev/null & wait $!"
"""As the first process of a container, `tail` itself would ignore SIGTERM."""
_PORTS = {"orchestrator": "orchestrator", "llm-node": "control", "llm-proxy": "proxy"}


def pod(recipe: KubernetesFleet, plan: FleetPlan, component: str) -> Yaml:
    """The pods of a kind, without the labels of their StatefulSet."""
    specs = processes_of(plan, recipe.pods(component)[0])
    is_head = component == HEAD
    containers = [_node(recipe, component, specs)]
    if is_head:
        containers.append(_keeper(recipe))
    return {
        **_placing(recipe, component),
        **({} if is_head or recipe.privileged else {"hostUsers": False}),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        # Variables of Services would be read as settings: ROLLYARD_PORT.
        "enableServiceLinks": False,
        "securityContext": _pod_security(recipe, sandboxes=not is_head),
        "initContainers": [_logs(recipe, specs)],
        "containers": containers,
        "volumes": _volumes(recipe, component),
    }


def _placing(recipe: KubernetesFleet, component: str) -> Yaml:
    """Where the pods may run: each on a machine of its own, as far as there are enough."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels(recipe, component)},
    }
    selector = {GPU: recipe.gpu_room, CPU: recipe.cpu_room}
    named = selector[component].selector if component in selector else {}
    lent = {"key": recipe.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    return {
        **({"nodeSelector": dict(named)} if named else {}),
        **({"tolerations": [lent]} if component == GPU else {}),
        "topologySpreadConstraints": [spread],
    }


def labels(recipe: KubernetesFleet, component: str = "") -> dict[str, str]:
    """The labels of all pods of the fleet, or of those of one kind."""
    return {
        "app.kubernetes.io/name": "rollyard",
        "app.kubernetes.io/instance": recipe.name,
        **({"app.kubernetes.io/component": component} if component else {}),
    }


def ports_of(specs: Sequence[ProcessSpec], *, door: int | None = None) -> dict[str, int]:
    """Name -> port, of all that other pods call."""
    called = {_PORTS.get(spec.name, spec.name): spec.port for spec in specs if _is_called(spec)}
    return called if door is None else {**called, "prorl": door}


def _is_called(spec: ProcessSpec) -> bool:
    return spec.name in (*_PORTS, "agent")


def _node(recipe: KubernetesFleet, component: str, specs: Sequence[ProcessSpec]) -> Yaml:
    settings = recipe.fleet
    door = None if component == HEAD else settings.port + 1
    words = ("node", "--directory", str(DIRECTORY), "--from", str(SOURCE), "--name", "$(POD_NAME)")
    return {
        "name": "node",
        "image": recipe.image,
        "args": list(words),
        "env": _environment(),
        "ports": [
            {"name": name, "containerPort": port}
            for name, port in ports_of(specs, door=door).items()
        ],
        **_probes(recipe, component, specs),
        "resources": _resources(recipe, component),
        "securityContext": _container_security(recipe, sandboxes=component != HEAD),
        "volumeMounts": _mounts(recipe, component),
    }


def _probes(recipe: KubernetesFleet, component: str, specs: Sequence[ProcessSpec]) -> Yaml:
    """A GPU node lives as long as its LLM servers are looked after, which agents elsewhere ask."""
    alive = {HEAD: "orchestrator", GPU: "llm-node", CPU: "agent"}[component]
    ports = {spec.name: _PORTS.get(spec.name, spec.name) for spec in specs}
    ready = "orchestrator" if component == HEAD else "agent"
    start_seconds = max(spec.ready_seconds for spec in specs)
    looked_for = {"periodSeconds": PROBE_SECONDS, "timeoutSeconds": PROBE_SECONDS}

    def probe(path: str, process: str, seconds: float) -> Yaml:
        get = {"path": path, "port": ports[process]}
        scheme = {"scheme": "HTTPS"} if recipe.fleet.tls is not None else {}
        failures = math.ceil(seconds / PROBE_SECONDS)
        return {"httpGet": {**get, **scheme}, **looked_for, "failureThreshold": failures}

    return {
        # Its own processes have as long; the node says better what is late.
        "startupProbe": probe("/readyz", ready, 1.5 * start_seconds),
        "readinessProbe": probe("/readyz", ready, 2 * PROBE_SECONDS),
        "livenessProbe": probe("/livez", alive if alive in ports else ready, DEAD_SECONDS),
    }


def _keeper(recipe: KubernetesFleet) -> Yaml:
    words = ("kubernetes", "keep", "--directory", str(DIRECTORY), "--from", str(SOURCE))
    mounts = [
        {"name": "source", "mountPath": str(SOURCE), "readOnly": True},
        {"name": "keeper", "mountPath": str(DIRECTORY)},
        {"name": "temporary", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
        *_tls_mounts(recipe),
    ]
    return {
        "name": "keeper",
        "image": recipe.image,
        "args": list(words),
        "env": _environment(),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": _container_security(recipe, sandboxes=False),
        "volumeMounts": mounts,
    }


def _logs(recipe: KubernetesFleet, specs: Sequence[ProcessSpec]) -> Yaml:
    logs = DIRECTORY / "nodes" / "$(POD_NAME)" / LOGS
    return {
        "name": "logs",
        "image": recipe.image,
        "restartPolicy": "Always",
        "command": ["sh", "-c", _FOLLOW, "logs"],
        "args": [str(logs / f"{spec.name}.log") for spec in specs],
        "env": _environment(),
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": _container_security(recipe, sandboxes=False),
        "volumeMounts": [{"name": "own", "mountPath": str(DIRECTORY), "readOnly": True}],
    }


def _environment() -> list[Yaml]:
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    return [
        {"name": "POD_NAME", "valueFrom": field},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - the image's own cannot be written
    ]


def _resources(recipe: KubernetesFleet, component: str) -> Yaml:
    if component == HEAD:
        return {"requests": {"cpu": "2", "memory": "4Gi"}}
    room = recipe.gpu_room if component == GPU else recipe.cpu_room
    gpus = {recipe.gpu_resource: recipe.gpus_per_node} if _has_gpus(recipe, component) else {}
    return {
        "requests": {"cpu": room.cpus, "memory": room.memory, **gpus},
        "limits": {"memory": room.memory, **gpus},
    }


def _has_gpus(recipe: KubernetesFleet, component: str) -> bool:
    return component == GPU and recipe.gpus_per_node > 0 and not recipe.fleet.llm_on_cpus


def _pod_security(recipe: KubernetesFleet, *, sandboxes: bool) -> Yaml:
    profile = {"type": "Unconfined" if sandboxes else "RuntimeDefault"}
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": profile,
        **({"appArmorProfile": profile} if sandboxes else {}),
    }


def _container_security(recipe: KubernetesFleet, *, sandboxes: bool) -> Yaml:
    if sandboxes and recipe.privileged:
        return {"privileged": True, "readOnlyRootFilesystem": True}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **({"procMount": "Unmasked"} if sandboxes else {}),
    }


def _mounts(recipe: KubernetesFleet, component: str) -> list[Yaml]:
    queues = [{"name": "queues", "mountPath": str(QUEUES)}] if component == HEAD else []
    shared = [{"name": "shared-memory", "mountPath": "/dev/shm"}] if component == GPU else []  # noqa: S108
    claims = [
        {"name": claim.name, "mountPath": str(claim.path), "readOnly": True}
        for claim in recipe.claims
        if component != HEAD
    ]
    return [
        {"name": "source", "mountPath": str(SOURCE), "readOnly": True},
        {"name": "own", "mountPath": str(DIRECTORY)},
        {"name": "temporary", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
        *_tls_mounts(recipe),
        *queues,
        *shared,
        *claims,
    ]


def _tls_mounts(recipe: KubernetesFleet) -> list[Yaml]:
    mount = {"name": "tls", "mountPath": str(TLS), "readOnly": True}
    return [mount] if recipe.tls_secret else []


def _volumes(recipe: KubernetesFleet, component: str) -> list[Yaml]:
    secrets = (TOKENS, REDIS_PASSWORD) if component == HEAD else (TOKENS,)
    items = [{"key": name, "path": name} for name in secrets]
    plan = {"configMap": {"name": f"{recipe.name}-plan", "items": [{"key": FLEET, "path": FLEET}]}}
    sources = [plan, {"secret": {"name": recipe.secret_name, "items": items}}]
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    tls = {"name": "tls", "secret": {"secretName": recipe.tls_secret, "defaultMode": 0o440}}
    claims = [
        {"name": each.name, "persistentVolumeClaim": {"claimName": each.name, "readOnly": True}}
        for each in recipe.claims
    ]
    return [
        {"name": "source", "projected": {"sources": sources, "defaultMode": 0o440}},
        {"name": "own", "emptyDir": {}},
        {"name": "temporary", "emptyDir": {}},
        *([tls] if recipe.tls_secret else []),
        *([{"name": "keeper", "emptyDir": {}}] if component == HEAD else claims),
        *([memory] if component == GPU else []),
    ]
