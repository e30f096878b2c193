"""Every agent and adapted environment through DAPO on the real vLLM, each trajectory scored again.

The weights change while episodes are under way, so that parts of one are of several versions."""

import pytest
from rich.console import Console
from rich.table import Table

from rollyard.messages import Result
from tests.real_doors.rescoring import SpanGap, gaps
from tests.real_doors.rows import Rows, adapter
from tests.real_doors.training import SAMPLING, Trained, trajectory, versions

pytestmark = pytest.mark.timeout(7200)  # the first test makes the policy, starts vLLM, and trains

MAX_GAP = 1e-3
TELLING_GAP = 1e-2
"""What the worst token of a span is off, at least, under weights that did not sample it."""


def test_every_environment_is_played_and_behind_every_adapter_a_trajectory_spans_an_update(
    trained: Trained, rows: Rows
) -> None:
    assert not trained.lacking(rows)


def test_the_rewards_of_every_group_differ(trained: Trained) -> None:
    for batch in trained.batches:
        for group in batch.groups:
            assert len({result.reward for result in group.results}) > 1


def test_every_span_covers_what_its_weights_sampled_and_nothing_else(
    trained: Trained, rows: Rows
) -> None:
    for result in (result for name in rows for result in trained.results(name)):
        for each in trajectory(result).sequences:
            spans = each.weight_spans
            sampled = [place for place, bit in enumerate(each.loss_mask) if bit]
            assert [p for span in spans for p in range(span.start, span.end)] == sampled
            assert not any(span.assumed for span in spans)


@pytest.fixture(scope="module")
def spans(trained: Trained, rows: Rows) -> dict[str, list[SpanGap]]:
    """The gaps of each environment's spans."""
    returned = {name: results for name in rows if (results := trained.results(name))}
    found = {name: _gaps(trained, results) for name, results in returned.items()}
    table = Table("environment", "trajectories", "split", "turns", "sequences", "spans")
    for column in ("of several versions", "tokens", "worst gap (nat)", "under another version"):
        table.add_column(column)
    for name, of_spans in found.items():
        table.add_row(name, *counts(returned[name]), *figures(of_spans))
    Console(width=160).print(table)
    return found


def _gaps(trained: Trained, results: list[Result]) -> list[SpanGap]:
    sequences = [
        (each, versions(result)) for result in results for each in trajectory(result).sequences
    ]
    of_sequences = gaps(sequences, trained.checkpoints, SAMPLING.temperature)
    return [span for each in of_sequences for span in each]


def test_every_token_scores_as_it_was_sampled_under_the_weights_it_names(
    spans: dict[str, list[SpanGap]],
) -> None:
    worst = {name: max(span.own for span in found) for name, found in spans.items()}
    assert max(worst.values()) <= MAX_GAP, worst


def test_under_other_weights_of_the_same_trajectory_it_does_not(
    spans: dict[str, list[SpanGap]],
) -> None:
    of_adapters: dict[str, list[float]] = {adapter(name): [0.0] for name in spans}
    for name, found in spans.items():
        of_adapters[adapter(name)] += [gap for span in found for gap in span.others]
    for name, told in of_adapters.items():
        assert max(told) > TELLING_GAP, name


def counts(results: list[Result]) -> list[str]:
    made = [trajectory(result) for result in results]
    sequences = [each for one in made for each in one.sequences]
    return [
        str(number)
        for number in (
            len(made),
            sum(bool(one.earlier) for one in made),
            sum(len(each.turns) for each in sequences),
            len(sequences),
            sum(len(each.weight_spans) for each in sequences),
            sum(len(versions(result)) > 1 for result in results),
        )
    ]


def figures(spans: list[SpanGap]) -> list[str]:
    others = [gap for span in spans for gap in span.others]
    return [
        str(sum(span.tokens for span in spans)),
        f"{max(span.own for span in spans):.1e}",
        f"{max(others):.1e}" if others else "",
    ]
