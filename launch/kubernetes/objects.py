"""All objects of a fleet, in the order in which they are printed."""

import hashlib
from typing import Any

from launch.documents import as_text
from launch.fleet import FLEET, FleetPlan
from launch.kubernetes.pods import Yaml, labels, pod, ports_of
from launch.kubernetes.recipe import CPU, GPU, HEAD, KubernetesFleet
from launch.node_processes import processes_of
from rollyard.tokens import TOKEN_FILE_VARIABLE

CLIENT = "rollyard/client"
"""Label of the pods of trainers; its value is the fleet's name."""


def objects_of(recipe: KubernetesFleet) -> list[Yaml]:
    """Everything but the secrets. Raises `LaunchError`."""
    plan = recipe.plan()
    kinds = [kind for kind in (HEAD, GPU, CPU) if recipe.pods(kind)]
    return [
        _config_map(recipe, "plan", {FLEET: as_text(plan)}),
        _config_map(recipe, "environment", _environment(plan)),
        _service(recipe, plan, kinds),
        *(_stateful_set(recipe, plan, kind) for kind in kinds),
        # The head has none: what comes back by itself should hold up no maintenance.
        *(_disruption_budget(recipe, kind) for kind in kinds if kind != HEAD),
        _network_policy(recipe),
    ]


def _object(recipe: KubernetesFleet, version: str, kind: str, name: str, **fields: Any) -> Yaml:
    metadata = {"name": name, "namespace": recipe.namespace, "labels": labels(recipe)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _config_map(recipe: KubernetesFleet, name: str, data: dict[str, str]) -> Yaml:
    return _object(recipe, "v1", "ConfigMap", f"{recipe.name}-{name}", data=data)


def _environment(plan: FleetPlan) -> dict[str, str]:
    """The variables of a trainer, whose token is in the Secret."""
    variables = plan.environment()
    del variables[TOKEN_FILE_VARIABLE]
    return variables


def _service(recipe: KubernetesFleet, plan: FleetPlan, kinds: list[str]) -> Yaml:
    ports: dict[str, int] = {}
    for kind in kinds:
        door = None if kind == HEAD else plan.settings.port + 1
        ports |= ports_of(processes_of(plan, recipe.pods(kind)[0]), door=door)
    spec = {
        "clusterIP": "None",
        # Nodes register before they are ready, and call each other while they start.
        "publishNotReadyAddresses": True,
        "selector": labels(recipe),
        "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()],
    }
    return _object(recipe, "v1", "Service", recipe.service, spec=spec)


def _stateful_set(recipe: KubernetesFleet, plan: FleetPlan, kind: str) -> Yaml:
    digest = hashlib.sha256(as_text(plan).encode()).hexdigest()
    template = {
        "metadata": {
            "labels": labels(recipe, kind),
            # Another plan is another pod: it is read when a node starts.
            "annotations": {"rollyard/plan": digest[:16]},
        },
        "spec": pod(recipe, plan, kind),
    }
    spec = {
        "serviceName": recipe.service,
        "replicas": len(recipe.pods(kind)),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels(recipe, kind)},
        "template": template,
        **({"volumeClaimTemplates": [_queues(recipe)]} if kind == HEAD else {}),
    }
    return _object(recipe, "apps/v1", "StatefulSet", recipe.kind(kind), spec=spec)


def _queues(recipe: KubernetesFleet) -> Yaml:
    named = {"storageClassName": recipe.storage_class} if recipe.storage_class else {}
    return {
        "metadata": {"name": "queues", "labels": labels(recipe)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            **named,
            "resources": {"requests": {"storage": recipe.queue_size}},
        },
    }


def _disruption_budget(recipe: KubernetesFleet, kind: str) -> Yaml:
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": labels(recipe, kind)},
    }
    return _object(recipe, "policy/v1", "PodDisruptionBudget", recipe.kind(kind), spec=spec)


def _network_policy(recipe: KubernetesFleet) -> Yaml:
    """Pods of the fleet reach each other; trainers reach the orchestrator and the ProRL doors."""
    port = recipe.fleet.port
    own = {"podSelector": {"matchLabels": labels(recipe)}}
    clients = {"podSelector": {"matchLabels": {CLIENT: recipe.name}}}
    ports = [{"protocol": "TCP", "port": each} for each in (port, port + 1)]
    spec = {
        "podSelector": {"matchLabels": labels(recipe)},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [own]}, {"from": [clients], "ports": ports}],
    }
    return _object(recipe, "networking.k8s.io/v1", "NetworkPolicy", recipe.name, spec=spec)
