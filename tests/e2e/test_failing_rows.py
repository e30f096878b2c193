"""A trainer whose rows all fail is told why, and keeps the rest of its dataset."""

import itertools
import time
from collections.abc import Iterator

import pytest

from rollyard import Client
from rollyard.errors import RunFailing
from rollyard.messages import ServerState
from tests.deployment_fixtures import RunningDeployment

PROMISED_SECONDS = 30.0
"""From the request until the trainer is told."""


@pytest.fixture
def client(lasting_deployment: RunningDeployment) -> Client:
    return Client(lasting_deployment.url)


def test_a_dataset_of_rows_that_all_fail_is_said_at_once(client: Client) -> None:
    taken: list[int] = []

    def rows() -> Iterator[dict[str, str]]:
        for number in itertools.count():
            taken.append(number)
            yield {"data_source": "arithmetic", "answer": str(number)}

    began = time.monotonic()
    died = r"groups died .*question.*prompts: \w+-0000"
    with client.run(rows(), run_id="failing", group_size=4) as run:
        with pytest.raises(RunFailing, match=died) as told:
            run.rollout(2)
        run.finish()
    assert time.monotonic() - began < PROMISED_SECONDS
    assert len(taken) < 100, told.value
    conditions = [server.condition.state for server in client.status().servers]
    assert conditions == [ServerState.SERVING] * 2, "the rows are to blame, not the servers"


def test_a_prompt_longer_than_the_models_context_is_said_with_both_numbers(
    client: Client,
) -> None:
    rows = (
        {"data_source": "arithmetic", "question": f"{number}+" * 9999, "answer": "0"}
        for number in itertools.count()
    )
    too_long = r"prompt alone has \d+ tokens, .* context .* \d+"
    with client.run(rows, run_id="too-long", group_size=4) as run:
        with pytest.raises(RunFailing, match=too_long):
            run.rollout(2)
        run.finish()
