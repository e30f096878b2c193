"""Evaluation beside a training that goes on."""

from typing import Any
from urllib.parse import urlsplit

from rollyard.messages import RunSettings, WeightReport, WeightUpdate
from rollyard.trainers.evaluation import evaluate
from tests.trainers.contract import GROUP_SIZE
from tests.trainers.orchestrator import FIRST_VERSION, Orchestrator
from tests.trainers.process import ConnectedClient, Connection, Process
from tests.trainers.training import rows


class Published(Orchestrator):
    """New weights are published when the first rows are fed."""

    def post(
        self, path: str, message: Any, kind: Any, *, timeout_seconds: float | None = None
    ) -> Any:
        feeds = urlsplit(path).path.endswith("/prompts")
        if feeds and self.served == FIRST_VERSION:
            update = WeightUpdate(path="/weights", version=FIRST_VERSION + 1)
            super().post(path.replace("prompts", "weights"), update, WeightReport)
        return super().post(path, message, kind)


def test_weights_that_are_published_meanwhile_do_not_end_an_evaluation(tmp_path: Any) -> None:
    orchestrator = Published()
    settings = RunSettings(run_id="run", group_size=GROUP_SIZE)
    with ConnectedClient(Connection(orchestrator, Process(tmp_path)), None) as client:
        batch = evaluate(client, rows(6), settings, samples=2)
    assert [group.prompt.instance["row"] for group in batch.groups] == list(range(6))
    versions = {
        span.version
        for group in batch.groups
        for result in group.results
        if result.trajectory is not None
        for span in result.trajectory.weight_spans
    }
    assert FIRST_VERSION + 1 in versions
    assert all(run.closed for run in orchestrator.runs.values())
