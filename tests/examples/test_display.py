import io

import pytest
from display import Display
from rich.console import Console
from test_report import step

from rollyard.messages import Counters, RunStatus


@pytest.fixture
def terminal() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)


def status() -> RunStatus:
    return RunStatus(
        run_id="run",
        batch_id="batch-1",
        requested_batch_size=16,
        effective_groups=7,
        open_groups=3,
        idle=False,
        prompts_wanted=0,
        batch_ready=False,
        counters=Counters(groups_filtered=120, jobs_leased=32),
    )


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_bar_shows_reward_groups_jobs_and_an_eta_on_a_narrow_terminal(
    terminal: Console,
) -> None:
    with Display(terminal, max_steps=60) as display:
        display.stepped(step(8, 0.5))
        display.training(status())
    bar = next(line for line in shown(terminal).splitlines()[::-1] if "train" in line)
    assert "8/60 reward 0.50, groups 7/16, filtered 120, running 32 ETA ≤ --:--" in bar


def test_every_step_leaves_a_line(terminal: Console) -> None:
    with Display(terminal, max_steps=60) as display:
        for number in (1, 2):
            display.stepped(step(number, 0.5))
    for number in (1, 2):
        assert f"step  {number}  reward 0.500  groups 16 kept, 4 filtered" in shown(terminal)


def test_every_step_says_whom_its_batch_prefers_and_where_the_time_went(
    terminal: Console,
) -> None:
    with Display(terminal, max_steps=60) as display:
        display.stepped(step(1, 0.5))
    assert "long 9% of 10%, mean 1.01 x; slots useful 60%, filtered 30%" in shown(terminal)


def test_an_evaluation_ends_with_its_pass_rate(terminal: Console) -> None:
    with Display(terminal, max_steps=60) as display:
        display.evaluating(status())
        display.evaluated("before", 0.505)
    assert "pass rate before training: 0.505" in shown(terminal)
