"""What a launcher tells of its parts reaches `rollyard status`, also without an orchestrator."""

from pathlib import Path

from launch.parts import PartStatus, parts_behind, read_parts, write_parts
from launch.restarts import PartState
from rollyard.tokens import make_token_file
from tests.launch.test_up import rollyard

NOBODY = "http://127.0.0.1:9"
DIED = PartStatus(name="orchestrator", state=PartState.WAITING, reason="was killed by SIGKILL")


def test_while_the_orchestrator_is_away_the_launcher_says_why(tmp_path: Path) -> None:
    make_token_file(tmp_path / "tokens")
    write_parts(tmp_path, [DIED, PartStatus(name="redis", state=PartState.READY)])
    answer = rollyard("status", "--url", NOBODY, "--token-file", str(tmp_path / "tokens"))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"rollyard: no answer from orchestrator at {NOBODY}")
    says = "its launcher says that orchestrator is waiting, since it was killed by SIGKILL\n"
    assert answer.stderr.endswith(says)


def test_where_no_launcher_tells_anything_there_are_no_parts(tmp_path: Path) -> None:
    assert read_parts(tmp_path) == ()
    (tmp_path / "parts.json").write_text("{")
    assert read_parts(tmp_path) == ()
    assert parts_behind(NOBODY, None) == ()
