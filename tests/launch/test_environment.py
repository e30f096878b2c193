"""How `launch/environment.sh` makes environments, and what it says where it cannot."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "uv.lock", "launch/environment.sh", "launch/pip_settings.py")
TOOLS = ("sh", "dirname", "cat", "cksum", "date", "rm", "mv", "head", "grep", "flock", "uname")
TOOLS_OF_THE_STAND_INS = ("mkdir", "cp", "chmod")
SECONDS = 30.0

PYTHON = """#!/bin/sh
case "$*" in
*version_info*) echo 3.11 ;;
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip"*) echo "pip $*" >>calls && cp "$UV" .venv-uv/bin/uv && chmod +x .venv-uv/bin/uv ;;
esac
"""
UV = """#!/bin/sh
case "$1" in
export | pip) echo "$*" >>calls ;;
esac
case "$1" in
pip) . ./install ;;
esac
"""
TOO_OLD = "#!/bin/sh\nexit 2\n"


class Checkout:
    """What the script reads, in a directory of its own, and a PATH with what it needs and no
    Python. Its Python and uv are stand-ins: `install` is what uv does to install."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "checkout"
        for source in (*SOURCES, "launch/uv.txt"):
            (self.directory / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / source, self.directory / source)
        self._path = directory / "path"
        self._path.mkdir()
        for tool in (*TOOLS, *TOOLS_OF_THE_STAND_INS):
            found = shutil.which(tool)
            assert found is not None, f"this machine has no {tool}"
            (self._path / tool).symlink_to(found)
        self._uv = directory / "uv"
        self._uv.write_text(UV)

    def has(self, name: str, words: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        (self._path / name).write_text(words)
        (self._path / name).chmod(0o755)

    def lacks(self, name: str) -> None:
        (self._path / name).unlink()

    def installs_by(self, words: str) -> None:
        (self.directory / "install").write_text(words)

    def start(self, *names: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["/bin/sh", str(self.directory / "launch" / "environment.sh"), *names],
            env={"PATH": str(self._path), "UV": str(self._uv)},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def make(self, *names: str) -> tuple[int, list[str]]:
        """The exit code, and what was said."""
        script = self.start(*names)
        _, said = script.communicate(timeout=SECONDS)
        return script.returncode, said.splitlines()

    def installations(self) -> list[str]:
        calls = self.directory / "calls"
        words = calls.read_text().splitlines() if calls.exists() else []
        return [call for call in words if "pip install" in call]


@pytest.fixture
def bare(tmp_path: Path) -> Checkout:
    """On a machine without Python."""
    return Checkout(tmp_path)


@pytest.fixture
def checkout(bare: Checkout) -> Checkout:
    """On a machine that has everything."""
    bare.has("python3", PYTHON)
    bare.has("uv", UV)
    bare.installs_by("true")
    return bare


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("services", "rollyard: Python 3.11 or newer is needed; install it"),
        ("llm", "rollyard: vLLM's CPU build needs Python 3.11; install it"),
        (
            "gpu",
            "rollyard: unknown environment 'gpu'; there are: services llm trl trainers tools",
        ),
    ],
)
def test_without_python_one_sentence_says_what_to_install(
    bare: Checkout, name: str, sentence: str
) -> None:
    code, (said,) = bare.make(name)
    assert code == 1
    assert said.startswith(sentence)


@pytest.mark.parametrize(("name", "version"), [("services", "3.10"), ("llm", "3.12")])
def test_a_python_that_does_not_fit_is_as_good_as_none(
    bare: Checkout, name: str, version: str
) -> None:
    bare.has("python3", f"#!/bin/sh\necho {version}\n")
    code, (said,) = bare.make(name)
    assert code == 1
    assert "Python 3.11" in said


def test_a_machine_for_which_no_vllm_is_locked_is_told_so(checkout: Checkout) -> None:
    checkout.has("uname", "#!/bin/sh\necho aarch64\n")
    assert checkout.make("llm") == (
        1,
        ["rollyard: uv.lock has vLLM's CPU build for x86_64 alone."],
    )


def test_a_python_that_cannot_make_environments_is_told_what_it_lacks(checkout: Checkout) -> None:
    checkout.has("python3", '#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; *) echo 3.11 ;; esac\n')
    code, (said,) = checkout.make("services")
    assert code == 1
    assert "cannot make virtual environments; install its venv package" in said


def test_an_environment_is_made_once(checkout: Checkout) -> None:
    code, (making, made) = checkout.make("services", "services")
    assert code == 0
    assert making.startswith("Making .venv with ")
    assert made.startswith("Made .venv in ")
    assert checkout.make("services") == (0, [])
    assert len(checkout.installations()) == 1


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_made_again_when_what_it_is_made_from_changes(
    checkout: Checkout, source: str
) -> None:
    checkout.make("services")
    with (checkout.directory / source).open("a") as changed:
        changed.write("\n# changed\n")
    code, said = checkout.make("services")
    assert (code, len(said)) == (0, 2)
    assert len(checkout.installations()) == 2


def test_what_fails_is_one_sentence_with_its_log_and_is_tried_again(checkout: Checkout) -> None:
    checkout.installs_by("echo 'error: no such host' >&2; exit 1")
    code, said = checkout.make("services")
    assert code == 1
    assert "error: no such host" in said
    assert said[-1] == "rollyard: could not make .venv; the whole story is in .venv.log."
    assert "no such host" in (checkout.directory / ".venv.log").read_text()
    assert not (checkout.directory / ".venv").exists()
    checkout.installs_by("true")
    assert checkout.make("services")[0] == 0


def test_what_was_interrupted_is_made_again(checkout: Checkout) -> None:
    checkout.installs_by("read -r never <fifo")
    os.mkfifo(checkout.directory / "fifo")
    script = checkout.start("services")
    with (checkout.directory / "fifo").open("w"):  # opens once uv installs
        os.killpg(script.pid, signal.SIGKILL)
        script.communicate(timeout=SECONDS)
    assert (checkout.directory / ".venv").exists()
    checkout.installs_by("true")
    assert len(checkout.make("services")[1]) == 2
    assert checkout.make("services") == (0, [])


def test_two_at_once_take_turns_and_the_second_finds_it_made(checkout: Checkout) -> None:
    checkout.installs_by("read -r done <fifo")
    os.mkfifo(checkout.directory / "fifo")
    first = checkout.start("services")
    with (checkout.directory / "fifo").open("w") as fifo:
        second = checkout.start("services")
        assert second.stderr is not None
        assert second.stderr.readline() == "Waiting for another set-up of this checkout\n"
        fifo.write("done\n")
    first.communicate(timeout=SECONDS)
    assert second.communicate(timeout=SECONDS)[1] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(checkout.installations()) == 1


@pytest.mark.parametrize("present", [False, True])
def test_where_no_uv_fits_pip_installs_the_one_whose_hash_is_known(
    checkout: Checkout, present: bool
) -> None:
    if present:
        checkout.has("uv", TOO_OLD)
    else:
        checkout.lacks("uv")
    code, said = checkout.make("services")
    assert code == 0
    assert [line.split()[:2] for line in said] == [
        ["Making", ".venv-uv"],
        ["Made", ".venv-uv"],
        ["Making", ".venv"],
        ["Made", ".venv"],
    ]
    checkout.make("llm")
    by_pip, _, _ = checkout.installations()
    assert "--require-hashes --requirement launch/uv.txt" in by_pip


def test_pytorchs_own_index_is_asked_for_what_is_not_where_pip_looks(checkout: Checkout) -> None:
    checkout.installs_by('case "$*" in *pytorch.org*) ;; *) exit 1 ;; esac')
    assert checkout.make("llm")[0] == 0
    usual, further = checkout.installations()
    assert further == f"{usual} --index https://download.pytorch.org/whl/cpu"
