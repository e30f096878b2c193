"""A history holds what was written whole."""

from pathlib import Path

from chaos import history
from chaos.history import History


def test_a_line_that_its_writer_was_killed_in_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "trainer.jsonl"
    History(path).write("received", batch_id="b0")
    with path.open("ab") as torn:
        torn.write(b'{"at": 1, "event": "trained", "groups": [')
    assert [event["event"] for event in history.read(path)] == ["received"]
    History(path).write("trained", batch_id="b0")
    assert [event["event"] for event in history.read(path)] == ["received", "trained"]
