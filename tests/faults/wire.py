"""The calls that a test makes bare, to see what is answered and how."""

from typing import Any

import requests

from chaos import work
from rollyard import codec
from rollyard.api import OrchestratorAPI
from rollyard.errors import NotFound
from rollyard.messages import JobState, Prompt


def feed(url: str, run_id: str, number: int, **instance: Any) -> requests.Response:
    """Feed a Prompt to a Run, asked for or not."""
    row = {"data_source": work.DATA_SOURCE, "number": number, **instance}
    return requests.post(
        f"{url}/runs/{run_id}/prompts",
        data=codec.encode([Prompt(prompt_id=f"p{number}", instance=row)]),
        headers={"Content-Type": codec.MSGPACK},
        timeout=30,
    )


def leases(url: str, run_id: str) -> dict[str, tuple[str, int]]:
    """Leased Job -> the server that has it, and its attempt; none of a Run not there yet."""
    try:
        jobs = OrchestratorAPI(url).jobs(run_id, JobState.LEASED).jobs
    except NotFound:
        return {}
    return {job.job_id: (job.attempts[-1].server_id, job.attempts[-1].attempt) for job in jobs}


def parked(url: str, run_id: str) -> tuple[str, ...]:
    """The Run's Jobs that are parked."""
    listed = OrchestratorAPI(url).jobs(run_id, JobState.PARKED)
    return tuple(job.job_id for job in listed.jobs)


def assert_refused_for_now(answer: requests.Response, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, code)
    assert int(answer.headers["Retry-After"]) >= 1
