"""The report of a training run: report.json for programs, report.html for people.

report.html is one file that needs no network and no script. Text that came from outside the
page is escaped; colours follow the reader's light or dark preference.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from charts import learning_curve, occupancy_chart, slot_time_chart
from history import StepRecord, Summary

from rollyard import reporting
from rollyard.messages import Occupancy

_COLUMNS = (
    "step",
    "reward",
    "groups in batch",
    "groups filtered",
    "jobs accepted",
    "jobs carried over",
    "restarted",
    "age: trajectories",
    "long",
    "mean length",
    "useful",
    "rollout s",
    "train s",
    "weights s",
    "logprob gap",
)


def write_report(
    output: Path, summary: Summary, steps: Sequence[StepRecord], occupancy: Occupancy
) -> Path:
    """Write both files into `output`, and return the path of report.html."""
    output.mkdir(parents=True, exist_ok=True)
    report = {**summary.to_json(), "per_step": [step.to_json() for step in steps]}
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    page = output / "report.html"
    page.write_text(html_report(summary, steps, occupancy), encoding="utf-8")
    return page


def html_report(summary: Summary, steps: Sequence[StepRecord], occupancy: Occupancy) -> str:
    return _PAGE.format(
        style=_STYLE,
        verdict="learned" if summary.ok else "not learned",
        verdict_class="good" if summary.ok else "bad",
        tiles=_tiles(summary),
        learning=learning_curve(steps, summary.pass_rate_before, summary.pass_rate_after),
        occupancy=occupancy_chart(occupancy, steps),
        slot_time=slot_time_chart(steps),
        samples="\n".join(_samples(step) for step in (*steps[:1], *steps[1:][-1:])),
        header="".join(f"<th>{escape(column)}</th>" for column in _COLUMNS),
        rows="\n".join(_row(step) for step in steps),
    )


def _tiles(summary: Summary) -> str:
    tiles = (
        ("pass rate", f"{summary.pass_rate_before:.3f} → {summary.pass_rate_after:.3f}"),
        ("steps", str(summary.steps)),
        ("groups kept", str(summary.groups_kept)),
        ("groups filtered", str(summary.groups_filtered)),
        ("jobs accepted", str(summary.jobs_accepted)),
        ("jobs carried over", str(summary.jobs_carried_over)),
        ("slot time useful", f"{summary.slot_time['useful']:.0%}"),
        ("long trajectories", f"{summary.long_share:.1%} of {summary.started_long_share:.1%}"),
        ("mean length", f"{summary.mean_length_ratio:.2f} x all"),
        ("oldest trajectory", f"{summary.oldest_age} versions"),
        ("largest logprob gap", f"{summary.max_logprob_gap:.1e}"),
        ("training", f"{summary.train_seconds:.0f} s"),
    )
    return "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles
    )


def _row(step: StepRecord) -> str:
    cells = (
        str(step.step),
        f"{step.reward:.3f}",
        str(step.groups_in_batch),
        str(step.groups_filtered),
        str(step.jobs_accepted),
        str(step.jobs_carried_over),
        str(step.members_restarted),
        reporting.ages(step.report),
        f"{step.report.bias.long_share:.1%} of {step.report.bias.started_long_share:.1%}",
        f"{step.report.bias.mean_ratio:.2f}",
        f"{reporting.shares(step.report.slot_seconds)['useful']:.0%}",
        f"{step.training_started_at - step.rollout_started_at:.2f}",
        f"{step.weights_started_at - step.training_started_at:.2f}",
        f"{step.ended_at - step.weights_started_at:.2f}",
        f"{step.logprob_gap:.1e}",
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _samples(step: StepRecord) -> str:
    return "\n".join(
        f"<h3>step {step.step}, reward {sample.reward:g} ({escape(sample.job_id)})</h3>"
        + "".join(
            f"<p><b>{escape(role)}</b> <code>{escape(said)}</code></p>"
            for role, said in sample.messages
        )
        for sample in step.samples
    )


_STYLE = """
:root { color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --ink: #1d2228; --quiet: #5c6670; --grid: #dfe2e6;
  --reward: #0b6bcb; --filtered: #c9d6e4; --training: #f3e3bd;
  --server-1: #2a8f82; --server-2: #7cc4a4; --server-3: #b9a44c; --server-4: #d98e5f;
  --useful: #0b6bcb; --surplus: #7fb2e5; --cancelled: #d98e5f; --failed: #b3261e; --idle: #e6e8eb;
  --good: #1a7f4b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171b; --card: #1c2026; --ink: #e8eaed; --quiet: #a3acb6; --grid: #353c45;
  --reward: #6cb2ff; --filtered: #3a4b5e; --training: #4d4228;
  --server-1: #2f9e90; --server-2: #1f6f5c; --server-3: #8f7f38; --server-4: #a8663c;
  --useful: #6cb2ff; --surplus: #2f5f95; --cancelled: #a8663c; --failed: #ff8a80; --idle: #2a3038;
  --good: #58c98b; --bad: #ff8a80; } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h3 { font-size: .95rem; margin: .75rem 0 .25rem; }
section p { margin: 0 0 .25rem; } code { white-space: pre-wrap; }
h2 { font-size: 1.1rem; margin: 0 0 .75rem; }
p { color: var(--quiet); margin: 0 0 1.25rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 10px;
  padding: 1.1rem 1.25rem; margin: 0 0 1.25rem; overflow-x: auto; }
svg { display: block; width: 100%; height: auto; min-width: 36rem; }
dl { display: flex; flex-wrap: wrap; gap: .75rem; margin: 0 0 1.25rem; }
dl div { flex: 1 1 calc(25% - 3rem); min-width: 7.5rem; padding: .6rem .8rem;
  background: var(--card); border: 1px solid var(--grid); border-radius: 10px; }
dt { color: var(--quiet); font-size: .8rem; }
dd { margin: 0; white-space: nowrap; font-size: 1.2rem; font-weight: 600;
  font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--grid); }
th { color: var(--quiet); font-weight: 500; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rollyard: a training run</title>
<style>{style}</style>
</head>
<body>
<h1>A training run: <span class="{verdict_class}">{verdict}</span></h1>
<p>A tiny policy, trained with DAPO on multi-turn rollouts to call its tool instead of guessing.</p>
<dl>
{tiles}
</dl>
<section><h2>Learning</h2>
{learning}
</section>
<section><h2>Slots at work</h2>
{occupancy}
</section>
<section><h2>What the slots' time was spent on</h2>
{slot_time}
<p>Short trajectories finish first, and a sampler that is not careful prefers them. Long ones are
the tenth of all started that took longest; mean length is that of the trajectories trained on over
that of all started. Age is in weight versions behind those that the batch updates.</p>
</section>
<section><h2>What the policy did</h2>
<p>The best and the worst trajectory of a group of the first step, and of one of the last. Groups
whose trajectories all got the same reward teach nothing: they were filtered, not delivered.</p>
{samples}
</section>
<section><h2>Steps</h2>
<table><thead><tr>{header}</tr></thead>
<tbody>
{rows}
</tbody></table>
</section>
</body>
</html>
"""
