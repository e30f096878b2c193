"""Who looks at a terminal sees what `rollout` waits for; a log file is spared it."""

import io
import os
import pty
import sys

import pytest

from rollyard.messages import Counters, RunStatus
from rollyard.progress import in_a_line, on_a_terminal, progress_line


def status(effective: int, waiting_for: str = "2 more effective groups") -> RunStatus:
    return RunStatus(
        run_id="train",
        batch_id="b",
        requested_batch_size=4,
        effective_groups=effective,
        open_groups=1,
        idle=False,
        prompts_wanted=0,
        batch_ready=False,
        counters=Counters(),
        waiting_for=waiting_for,
    )


def test_a_line_says_how_far_the_batch_is_and_what_it_waits_for() -> None:
    assert in_a_line(status(2), 80) == "train: 2 of 4; 2 more effective groups"


def test_a_line_fits_the_terminal() -> None:
    assert in_a_line(status(2, "x" * 100), 20) == "train: 2 of 4; xxx…"


def test_the_line_is_rewritten_when_it_changes_and_gone_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_line() as show:
        for effective in (1, 1, 2):
            show(status(effective))
    erased, *shown = terminal.getvalue().split("\r\x1b[K")
    assert not erased
    assert [line[:13] for line in shown] == ["train: 1 of 4", "train: 2 of 4", ""]


def test_a_terminal_is_told_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, terminal = pty.openpty()
    with os.fdopen(watcher), os.fdopen(terminal, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        assert on_a_terminal()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not on_a_terminal()
