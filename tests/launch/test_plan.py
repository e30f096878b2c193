"""The plan is pure: what runs where, without starting it."""

from pathlib import Path

import pytest

from launch.engine import LLM_START_SECONDS, Engine, LLMKind, find_model, listed
from launch.plan import DeploymentSettings, local_plan
from launch.ports import default_ports
from rollyard.errors import LaunchError
from serving.log_format import LogFormat


def settings(agent_servers: int = 2, llm_servers: int = 1, **changes: object) -> DeploymentSettings:
    values = {
        "model": Path("/models/tiny"),
        "directory": Path("/var/deployment"),
        "ports": default_ports(8005, agent_servers, llm_servers),
    }
    return DeploymentSettings(**(values | changes))  # type: ignore[arg-type]


def test_redis_starts_first_and_agent_servers_last() -> None:
    names = [spec.name for spec in local_plan(settings())]
    assert names == ["redis", "orchestrator", "llm-0", "llm-node", "agent-0", "agent-1"]


def test_every_agent_server_knows_every_llm_server_of_its_node() -> None:
    plan = {spec.name: spec for spec in local_plan(settings(llm_servers=2))}
    urls = [plan["llm-0"].url, plan["llm-1"].url]
    for name in ("agent-0", "agent-1"):
        assert [word for word in plan[name].command if word in urls] == urls


def test_no_two_processes_share_a_port() -> None:
    plan = local_plan(settings(agent_servers=3, llm_servers=2))
    ports = [spec.port for spec in plan]
    assert len(set(ports)) == len(ports) == 8


def test_the_orchestrator_takes_the_port_asked_for_and_agents_the_next() -> None:
    plan = {spec.name: spec.port for spec in local_plan(settings())}
    assert (plan["orchestrator"], plan["agent-0"], plan["agent-1"]) == (8005, 8006, 8007)


@pytest.mark.parametrize("opened", [True, False])
def test_prorl_doors_take_the_ports_that_their_clients_expect(opened: bool) -> None:
    ports = default_ports(8005, 2, 1, doors=2)
    plan = {spec.name: spec for spec in local_plan(settings(ports=ports, prorl_open=opened))}
    assert [plan[name].port for name in ("agent-0", "agent-1")] == [8008, 8009]
    for name, port in (("agent-0", "8006"), ("agent-1", "8007")):
        command = plan[name].command
        assert command[command.index("--prorl-port") + 1] == port
        assert ("--prorl-open" in command) is opened
    assert len(set(ports.named().values())) == len(ports.named()) == 8
    told = settings(ports=ports).prorl_server_urls
    assert told == "http://127.0.0.1:8006+http://127.0.0.1:8007"


@pytest.mark.parametrize("opened", [True, False])
def test_nemo_gym_doors_are_told_as_its_configuration_names_agent_servers(opened: bool) -> None:
    ports = default_ports(8005, 2, 1, doors=2)
    planned = settings(ports=ports, nemo_gym=True, nemo_gym_open=opened)
    command = {spec.name: spec for spec in local_plan(planned)}["agent-1"].command
    assert command[command.index("--nemo-gym-port") + 1] == "8007"
    assert ("--nemo-gym-open" in command) is opened
    assert planned.nemo_gym_agents["rollyard-1"] == {
        "responses_api_agents": {"rollyard": {"host": "127.0.0.1", "port": 8007}}
    }
    assert not planned.prorl_server_urls


def test_there_is_no_door_unless_asked_for() -> None:
    words = [word for spec in local_plan(settings()) for word in spec.command]
    assert not [word for word in words if "prorl" in word or "nemo-gym" in word]
    assert not settings().nemo_gym_agents


def test_every_wait_for_a_process_has_a_deadline() -> None:
    assert all(0 < spec.ready_seconds <= LLM_START_SECONDS for spec in local_plan(settings()))


def test_the_stand_in_takes_the_place_of_vllm() -> None:
    plan = {spec.name: spec for spec in local_plan(settings(engine=Engine(kind=LLMKind.SCRIPTED)))}
    assert "llm_servers.scripted" in plan["llm-0"].command
    assert "--python" not in plan["llm-0"].command


@pytest.mark.parametrize("llm", LLMKind)
def test_no_two_llm_servers_draw_alike(llm: LLMKind) -> None:
    deployment = settings(llm_servers=2, engine=Engine(kind=llm))
    plan = {spec.name: spec.command for spec in local_plan(deployment)}
    seeds = [plan[name][plan[name].index("--seed") + 1] for name in ("llm-0", "llm-1")]
    assert seeds == ["0", "1"]


def test_what_others_talk_to_stops_after_them() -> None:
    levels = {spec.name: spec.level for spec in local_plan(settings())}
    assert levels["redis"] < levels["orchestrator"] < levels["llm-0"] < levels["agent-0"]
    assert levels["llm-0"] < levels["llm-node"]


def test_an_engine_is_told_what_was_chosen_and_vllm_s_own_options_last() -> None:
    engine = Engine(
        dtype="bfloat16", max_model_len=8192, start_seconds=900, further=("--max-num-seqs", "128")
    )
    plan = {spec.name: spec for spec in local_plan(settings(engine=engine))}
    line = " ".join(plan["llm-0"].command)
    assert line.endswith("--dtype bfloat16 --max-model-len 8192 -- --max-num-seqs 128")
    assert plan["llm-0"].ready_seconds == 900
    assert plan["agent-0"].command[-2:] == ("--ready-seconds", "900")


def test_every_service_is_told_how_to_log_and_agent_servers_how_the_model_writes() -> None:
    deployment = settings(
        log_format=LogFormat.JSON, stop_tokens=("<eos>", "<end>"), tool_calls="mistral"
    )
    plan = {spec.name: " ".join(spec.command) for spec in local_plan(deployment)}
    assert all("--log-format json" in plan[name] for name in ("orchestrator", "llm-node"))
    for name in ("agent-0", "agent-1"):
        assert "--log-format json" in plan[name]
        assert "--stop-token=<eos> --stop-token=<end> --tool-calls=mistral" in plan[name]


def test_agent_servers_are_told_what_the_machine_has() -> None:
    specs = local_plan(settings(tags=("gpu", "large")))
    told = {spec.name for spec in specs if {"--tag=gpu", "--tag=large"} <= set(spec.command)}
    assert told == {"agent-0", "agent-1"}


def test_agent_servers_are_told_where_repositories_are() -> None:
    specs = local_plan(settings(repositories=Path("/repositories")))
    told = {spec.name for spec in specs if "--repositories=/repositories" in spec.command}
    assert told == {"agent-0", "agent-1"}


def test_agent_servers_are_told_where_images_are() -> None:
    specs = local_plan(settings(images=Path("/images")))
    told = {spec.name for spec in specs if "--images=/images" in spec.command}
    assert told == {"agent-0", "agent-1"}


def test_agent_servers_are_told_who_grades() -> None:
    graded = settings(reward_url="http://r:8388", reward_token_file=Path("/tokens"))
    plan = {spec.name: " ".join(spec.command) for spec in local_plan(graded)}
    for name in ("agent-0", "agent-1"):
        assert "--reward-url=http://r:8388 --reward-token-file=/tokens" in plan[name]
    assert "--reward-url" not in " ".join(local_plan(settings())[-1].command)


def test_llm_servers_share_the_gpus_evenly() -> None:
    engine = Engine(gpus=listed("0, 1,2,3"))
    plan = {spec.name: spec.command for spec in local_plan(settings(llm_servers=2, engine=engine))}
    assert "--gpus 0,1 --dtype auto" in " ".join(plan["llm-0"])
    assert "--gpus 2,3 --dtype auto" in " ".join(plan["llm-1"])
    with pytest.raises(LaunchError, match="3 LLM servers cannot share 4 GPUs evenly"):
        settings(llm_servers=3, engine=engine)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (
            {"kind": LLMKind.SCRIPTED, "dtype": "float16"},
            "it knows no dtype, GPUs",
        ),
        ({"further": ("max-num-seqs", "9")}, "'max-num-seqs' is not an option of vLLM"),
        ({"further": ("--port", "9")}, "--port is not to be given to vLLM"),
    ],
)
def test_an_engine_that_makes_no_sense_is_refused(chosen: dict[str, object], problem: str) -> None:
    with pytest.raises(LaunchError, match=problem):
        Engine(**chosen)  # type: ignore[arg-type]


def test_a_model_of_the_hub_is_found_where_it_was_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "models--org--tiny"
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert find_model("org/tiny") == snapshot
    with pytest.raises(LaunchError, match="the Hugging Face cache has no model of that name") as no:
        find_model("org/large")
    assert no.value.fix.startswith("download it first with `hf download org/large`")


def test_a_server_without_slots_is_refused() -> None:
    with pytest.raises(LaunchError, match="at least 1 slot"):
        settings(slots=0)


def test_ports_beyond_the_last_are_refused() -> None:
    with pytest.raises(LaunchError, match="65533 to 65538 do not exist"):
        default_ports(65533, 2, 1)
