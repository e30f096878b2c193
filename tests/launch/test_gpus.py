"""Which GPUs a machine has, and how LLM servers share them."""

from pathlib import Path

import pytest

from launch.engine import Engine, LLMKind
from launch.gpus import gpus_of_machine, shared_gpus
from launch.llm_node import llm_places
from rollyard.errors import LaunchError


@pytest.mark.parametrize(
    ("lent", "found"),
    [
        ("2,3", ("2", "3")),
        ("GPU-8932f937, GPU-5fa2", ("GPU-8932f937", "GPU-5fa2")),
        ("0,-1,1", ("0",)),
        ("", ()),
    ],
)
def test_gpus_that_the_environment_lends_are_all_that_there_are(
    lent: str, found: tuple[str, ...]
) -> None:
    assert gpus_of_machine({"CUDA_VISIBLE_DEVICES": lent}) == found


def driver(directory: Path, said: str, code: int = 0) -> None:
    """An nvidia-smi."""
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{said}'\nexit {code}\n")
    program.chmod(0o755)


def devices(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).touch()
    return directory


def test_else_the_driver_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, "0\\n1\\n2\\n3\\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpus_of_machine({}, tmp_path) == ("0", "1", "2", "3")


@pytest.mark.parametrize("said", ["", "NVIDIA-SMI has failed because it could not communicate"])
def test_without_a_driver_that_answers_its_device_files_are_counted(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said:
        driver(tmp_path, said, code=9)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if said else str(tmp_path))
    files = devices(tmp_path, "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null")
    assert gpus_of_machine({}, files) == ("2", "10")
    assert gpus_of_machine({}, tmp_path / "empty") == ()


def test_each_llm_server_has_gpus_of_its_own() -> None:
    assert shared_gpus(("4", "5", "6", "7"), 2) == (("4", "5"), ("6", "7"))
    assert shared_gpus((), 2) == ()
    with pytest.raises(LaunchError, match="use --tensor-parallel 1 or 3, or name those"):
        shared_gpus(("0", "1", "2"), 2)


def test_the_number_of_llm_servers_is_that_of_the_gpus_over_those_of_each() -> None:
    places = llm_places(Engine(), tuple("01234567"), 2, first_port=8102)
    assert [(place.port, place.seed, place.gpus) for place in places] == [
        (8102, 0, ("0", "1")),
        (8103, 1, ("2", "3")),
        (8104, 2, ("4", "5")),
        (8105, 3, ("6", "7")),
    ]
    assert [place.gpus for place in llm_places(Engine(), (), 2, first_port=1, on_cpu=2)] == [(), ()]
    scripted = Engine(kind=LLMKind.SCRIPTED)
    assert [place.gpus for place in llm_places(scripted, ("0", "1"), 1, first_port=1)] == [(), ()]
