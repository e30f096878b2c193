"""The objects of a fleet on Kubernetes, held against the schemas of Kubernetes itself."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from launch.commands import app
from launch.documents import from_text
from launch.fleet import FLEET, FleetPlan
from launch.kubernetes.pods import GRACE_SECONDS
from launch.node_processes import processes_of
from launch.processes import STOP_SECONDS
from rollyard.tokens import Role, parse_tokens

Yaml = dict[str, Any]
OLDEST = "1.33"
"""The first release in which pods have users of their own without being asked for it."""
ALL = ("--gpu-nodes", "3", "--cpu-nodes", "2", "--tensor-parallel", "2", "--model", "/models/m")
VARIANTS: dict[str, tuple[str, ...]] = {
    "usual": ALL,
    "without GPUs": ("--gpu-nodes", "0", "--cpu-nodes", "2", "--llm", "scripted"),
    "everything": (
        *ALL,
        *("--name", "yard", "--namespace", "rl", "--secret", "own", "--tls-secret", "certificate"),
        *("--claim", "models:/models", "--claim", "images:/images", "--storage-class", "fast"),
        *("--gpu-selector", "pool=a100", "--cpu-selector", "pool=cpu", "--privileged"),
        *("--cluster-domain", "cluster.example", "--port", "9005"),
    ),
}


def output(*words: str) -> str:
    answer = CliRunner().invoke(app, ["kubernetes", *words])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def rendered(*words: str) -> list[Yaml]:
    return list(yaml.safe_load_all(output("render", "--image", "registry/rollyard:1", *words)))


def made(objects: Sequence[Yaml], kind: str) -> dict[str, Yaml]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pod_specs(objects: Sequence[Yaml]) -> dict[str, Yaml]:
    return {
        name: each["spec"]["template"]["spec"]
        for name, each in made(objects, "StatefulSet").items()
    }


def containers(spec: Yaml) -> Iterator[Yaml]:
    yield from spec["initContainers"]
    yield from spec["containers"]


@pytest.fixture(params=list(VARIANTS.values()), ids=list(VARIANTS))
def objects(request: pytest.FixtureRequest) -> list[Yaml]:
    return rendered(*request.param)


def newest() -> str:
    return ".".join(kubernetes_validate.latest_version().split(".")[:2])


@pytest.mark.parametrize("version", [OLDEST, newest()])
def test_kubernetes_knows_every_field(objects: list[Yaml], version: str) -> None:
    secret = yaml.safe_load(output("secret"))
    for each in (*objects, secret):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_noticed(objects: list[Yaml]) -> None:
    (spec, *_) = pod_specs(objects).values()
    spec["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            next(iter(made(objects, "StatefulSet").values())), newest(), strict=True
        )


def test_what_selects_pods_selects_those_that_there_are(objects: list[Yaml]) -> None:
    labels = {
        name: each["spec"]["template"]["metadata"]["labels"]
        for name, each in made(objects, "StatefulSet").items()
    }

    def selected(selector: dict[str, str]) -> set[str]:
        return {name for name, own in labels.items() if selector.items() <= own.items()}

    for name, each in made(objects, "StatefulSet").items():
        assert selected(each["spec"]["selector"]["matchLabels"]) == {name}
        (spread,) = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert selected(spread["labelSelector"]["matchLabels"]) == {name}
        assert each["spec"]["serviceName"] in made(objects, "Service")
    for name, each in made(objects, "PodDisruptionBudget").items():
        assert selected(each["spec"]["selector"]["matchLabels"]) == {name}
    (service,) = made(objects, "Service").values()
    assert selected(service["spec"]["selector"]) == set(labels)
    (policy,) = made(objects, "NetworkPolicy").values()
    assert selected(policy["spec"]["podSelector"]["matchLabels"]) == set(labels)
    (inside, clients) = policy["spec"]["ingress"]
    assert selected(inside["from"][0]["podSelector"]["matchLabels"]) == set(labels)
    assert not selected(clients["from"][0]["podSelector"]["matchLabels"])


def test_services_and_probes_name_ports_that_there_are(objects: list[Yaml]) -> None:
    known: dict[str, int] = {}
    for spec in pod_specs(objects).values():
        for container in containers(spec):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
            probes = [container[name] for name in container if name.endswith("Probe")]
            assert {probe["httpGet"]["port"] for probe in probes} <= ports.keys()
            assert {name: known.get(name, port) for name, port in ports.items()} == ports
            known |= ports
    (service,) = made(objects, "Service").values()
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == known


def test_every_port_is_one_on_which_a_process_of_the_plan_listens(objects: list[Yaml]) -> None:
    plan = plan_in(objects)
    for name, spec in pod_specs(objects).items():
        node = spec["containers"][0]
        listened = {each.port for each in processes_of(plan, f"{name}-0")}
        if not name.endswith("-head"):
            listened.add(plan.settings.port + 1)
        assert {port["containerPort"] for port in node["ports"]} <= listened


def test_what_is_mounted_is_a_volume_and_every_volume_is_mounted(objects: list[Yaml]) -> None:
    for name, each in made(objects, "StatefulSet").items():
        spec = each["spec"]["template"]["spec"]
        claimed = {
            claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())
        }
        volumes = {volume["name"] for volume in spec["volumes"]} | claimed
        mounts = [mount for each in containers(spec) for mount in each.get("volumeMounts", ())]
        assert {mount["name"] for mount in mounts} == volumes, name
        for container in containers(spec):
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths)


def test_config_maps_and_keys_that_are_named_are_there(objects: list[Yaml]) -> None:
    maps = {name: set(each["data"]) for name, each in made(objects, "ConfigMap").items()}
    keys = set(yaml.safe_load(output("secret"))["stringData"])
    for spec in pod_specs(objects).values():
        (sources,) = (
            each["projected"]["sources"] for each in spec["volumes"] if "projected" in each
        )
        config, secret = sources
        named = {item["key"] for item in config["configMap"]["items"]}
        assert named <= maps[config["configMap"]["name"]]
        assert {item["key"] for item in secret["secret"]["items"]} <= keys


def plan_in(objects: Sequence[Yaml]) -> FleetPlan:
    (plan,) = (
        each["data"][FLEET] for each in made(objects, "ConfigMap").values() if FLEET in each["data"]
    )
    return from_text(plan, FleetPlan)


def test_the_pods_are_the_nodes_of_the_plan(objects: list[Yaml]) -> None:
    plan = plan_in(objects)
    pods = [
        f"{name}-{i}"
        for name, each in made(objects, "StatefulSet").items()
        for i in range(each["spec"]["replicas"])
    ]
    assert pods == list(plan.addresses)
    assert plan.nodes == tuple(pods[1:])
    (service,) = made(objects, "Service").values()
    below = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster."
    assert all(name.startswith(f"{pod}.{below}") for pod, name in plan.addresses.items())


def test_a_gpu_pod_asks_for_the_gpus_that_its_llm_servers_are_planned_on() -> None:
    objects = rendered(*ALL)
    limits = pod_specs(objects)["rollyard-gpu"]["containers"][0]["resources"]["limits"]
    planned = [s for s in plan_in(objects).placement.llm_servers if s.node == "rollyard-gpu-0"]
    assert limits["nvidia.com/gpu"] == 8 == sum(len(server.gpus) for server in planned)
    others = {name: spec for name, spec in pod_specs(objects).items() if name != "rollyard-gpu"}
    assert "gpu" not in str([spec["containers"][0]["resources"] for spec in others.values()])


def test_nothing_runs_as_root_or_can_become_it(objects: list[Yaml]) -> None:
    for name, spec in pod_specs(objects).items():
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert not spec["automountServiceAccountToken"]
        for container in containers(spec):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"]
            if not own.get("privileged"):
                assert (own["allowPrivilegeEscalation"], own["capabilities"]) == (
                    False,
                    {"drop": ["ALL"]},
                )
            # Kubernetes refuses an unmasked /proc in a pod without users of its own.
            assert "procMount" not in own or spec["hostUsers"] is False, name


def test_only_what_makes_sandboxes_has_what_they_take() -> None:
    for variant, taken in (
        ((), {"procMount": "Unmasked"}),
        (("--privileged",), {"privileged": True}),
    ):
        for name, spec in pod_specs(rendered(*ALL, *variant)).items():
            odd = [
                c["name"] for c in containers(spec) if taken.items() <= c["securityContext"].items()
            ]
            assert odd == ([] if name == "rollyard-head" else ["node"])


def test_a_pod_has_the_time_that_its_processes_have_to_stop(objects: list[Yaml]) -> None:
    plan = plan_in(objects)
    for name, spec in pod_specs(objects).items():
        levels = {each.level for each in processes_of(plan, f"{name}-0")}
        assert spec["terminationGracePeriodSeconds"] == GRACE_SECONDS
        assert (len(levels) + 1) * STOP_SECONDS < GRACE_SECONDS  # one more to kill what is left


def test_another_plan_is_another_pod() -> None:
    def marks(*words: str) -> set[str]:
        sets = made(rendered(*words), "StatefulSet").values()
        return {
            each["spec"]["template"]["metadata"]["annotations"]["rollyard/plan"] for each in sets
        }

    usual = marks(*ALL)
    assert len(usual) == 1
    assert marks(*ALL) == usual
    assert not marks(*ALL, "--slots", "17") & usual


def test_secrets_are_printed_by_the_command_that_is_named_after_them_alone() -> None:
    first, second = (yaml.safe_load(output("secret"))["stringData"] for _ in range(2))
    tokens = parse_tokens(first["tokens"], "the Secret")
    assert [grant.role for grant in tokens] == list(Role)
    (submit,) = parse_tokens(first["submit"], "the Secret")
    assert submit.token in {grant.token for grant in tokens if grant.role is Role.SUBMIT}
    assert not set(first["tokens"].split()) & set(second["tokens"].split()) - set(Role)
    manifests = output("render", "--image", "i", *ALL)
    assert "kind: Secret" not in manifests
    assert not re.search(r"\b(admin|submit|worker|read) [A-Za-z0-9_-]{16,}", manifests)


def test_with_tls_pods_are_probed_by_https_and_show_the_certificate_of_the_secret() -> None:
    objects = rendered(*VARIANTS["everything"])
    assert plan_in(objects).orchestrator_url.startswith("https://yard-head-0.")
    for spec in pod_specs(objects).values():
        assert spec["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes["tls"]["secret"]["secretName"] == "certificate"
    environment = made(objects, "ConfigMap")["yard-environment"]["data"]
    assert environment["ROLLYARD_URL"].endswith(".rl.svc.cluster.example:9005")
    assert "ROLLYARD_TOKEN_FILE" not in environment


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--name", "Yard"), "'Yard' is no name on Kubernetes"),
        (("--claim", "models"), "models:. names no volume"),
        (("--gpu-selector", "pool"), "'pool' is no label and its value"),
        (("--cpu-node-memory", "much"), "'much' is no quantity of Kubernetes"),
        (("--gpu-nodes", "0"), "a fleet needs at least one node"),
        (("--gpus-per-node", "1", "--tensor-parallel", "2"), "no node has the 2 GPUs"),
    ],
)
def test_what_no_cluster_takes_is_refused(words: tuple[str, ...], sentence: str) -> None:
    answer = CliRunner().invoke(app, ["kubernetes", "render", "--image", "i", *words])
    assert answer.exit_code == 1
    assert sentence in str(answer.exception)


def test_the_users_of_image_and_pods_are_the_same() -> None:
    containerfile = Path(__file__).parents[3] / "deploy" / "Containerfile"
    (user,) = re.findall(r"useradd --uid (\d+)", containerfile.read_text())
    assert {
        spec["securityContext"]["runAsUser"] for spec in pod_specs(rendered(*ALL)).values()
    } == {int(user)}
