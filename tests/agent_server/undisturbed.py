"""One conversation as it goes when nothing disturbs it, to compare others with."""

from agent_server.agents.chat_template import ChatTemplate
from rollyard.messages import Outcome, Result, Trajectory
from tests.agent_server.fakes import Says, assign, make_job
from tests.agent_server.running import ECHO, Start

ANSWERS = ("one", "and two", "bye")
"""The policy's, to the echo."""


def run_undisturbed(template: ChatTemplate) -> Trajectory:
    running = Start(template)(Says(template, *ANSWERS))
    running.runner.accept(assign(make_job(instance=ECHO)))
    trajectory = running.result().trajectory
    assert trajectory is not None
    running.runner.close(5)
    return trajectory


def assert_the_same(result: Result, undisturbed: Trajectory) -> Trajectory:
    """That the Job went as it would have gone; returns its trajectory."""
    assert (result.outcome, result.error) == (Outcome.COMPLETED, "")
    trajectory = result.trajectory
    assert trajectory is not None
    assert trajectory.token_ids == undisturbed.token_ids
    assert trajectory.loss_mask == undisturbed.loss_mask
    assert trajectory.turns == undisturbed.turns
    assert trajectory.messages == undisturbed.messages
    expected = [-p * sampled for p, sampled in enumerate(trajectory.loss_mask)]
    assert list(trajectory.logprobs) == expected
    sampled = [position for position, bit in enumerate(trajectory.loss_mask) if bit]
    spans = trajectory.weight_spans
    assert [p for span in spans for p in range(span.start, span.end)] == sampled
    versions = [span.version for span in spans]
    assert versions == sorted(versions)
    return trajectory
