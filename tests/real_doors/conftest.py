"""A deployment whose policy is of the tiny sort, and a dataset in which rows for every door mix."""

import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from rollyard import Client
from tests.deployment_fixtures import RunningDeployment
from tests.llm_fixtures import POLICY, ROOT, VLLM_PYTHON
from tests.real_doors.rows import Rows, served_rows
from tests.real_doors.training import Trained, train

CHATTERS = ROOT / "examples" / "chatterer" / "make_policy.py"
CHATTERER = ROOT / ".models" / f"chatterer-{crc32(CHATTERS.read_bytes()):08x}"
AGENTS = ROOT / "examples" / "agents"
ENVIRONMENTS = "rollyard.environments"
OPTIONS = (
    *("--slots", "4", "--tool-calls", "hermes"),
    *("--max-model-len", "16384", "--start-seconds", "400"),
)


@pytest.fixture(scope="module")
def policy() -> Path:
    if not CHATTERER.exists():
        CHATTERER.parent.mkdir(exist_ok=True)
        command = [str(VLLM_PYTHON), str(CHATTERS), str(POLICY), str(CHATTERER)]
        subprocess.run(command, check=True, timeout=1200)
    return CHATTERER


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    yield from served_rows(tmp_path_factory.mktemp("servers"))


@pytest.fixture(scope="module")
def deployment(
    policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDeployment]:
    """One that knows the environments of examples/agents, as where their package is installed."""
    installed = tmp_path_factory.mktemp("installed")
    _install(AGENTS, installed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", f"{installed}:{AGENTS}")
        directory = tmp_path_factory.mktemp("yard") / "deployment"
        running = RunningDeployment(directory, "--model", str(policy), *OPTIONS)
    try:
        running.wait_until_up()
        yield running
    finally:
        running.stop()


def _install(package: Path, directory: Path) -> None:
    """Make the directory, on a PYTHONPATH, do what the package does where it is installed."""
    declared = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    points = declared["entry-points"][ENVIRONMENTS]
    information = directory / f"{declared['name']}-{declared['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {declared['name']}\nVersion: 1\n")
    lines = "\n".join(f"{name} = {place}" for name, place in points.items())
    (information / "entry_points.txt").write_text(f"[{ENVIRONMENTS}]\n{lines}\n")


@pytest.fixture(scope="module")
def trained(
    deployment: RunningDeployment,
    rows: Rows,
    policy: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Trained:
    with closing(Client(deployment.url)) as client:
        return train(client, rows, policy, tmp_path_factory.mktemp("checkpoints"))
