"""Rewards of a service elsewhere: `rollyard rewards`, or a function at any URL that answers alike.

- One task is one POST of a `ScoreTask` in JSON; the answer is a JSON object with a `score`.
- A busy service is asked again until the deadline, one that fails or cannot be reached only a few
  times. A task that the service refuses is not asked about again.
- Only the token that was given for the service is sent to it.
"""

import time
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
import requests

from agent_server.rewards.protocol import ScoreTask
from rollyard import codec
from rollyard.backoff import Backoff
from rollyard.errors import GraderFailed, InvalidMessage, Unavailable
from rollyard.http import CONNECTIONS, MAX_CONNECT_SECONDS, DirectSession
from rollyard.messages import Failure, Grade, check, check_url
from rollyard.trust import refusal

PATH = "/compute_score"

_MAX_SHOWN_BYTES = 300
_RETRIES = 2
"""Number of times that a service which fails or cannot be reached is asked again."""
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_REFUSED = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


class RemoteRewardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the grading elsewhere."""

    url: str
    """URL of the service. One without a path is asked at `/compute_score`."""
    token: str = ""
    task_seconds: float = 20.0
    """Time for one task, with all repetitions."""

    def __repr__(self) -> str:
        return f"RemoteRewardSettings({self.url}, {self.task_seconds})"

    def __post_init__(self) -> None:
        check_url(self.url)
        check(self.task_seconds > 0, f"task_seconds must be positive, got {self.task_seconds}")


class _Answer(msgspec.Struct, frozen=True):
    """What is read of an answer. A service may say more."""

    score: float | bool
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    reason: str = ""


class _Busy(Unavailable):
    """The service's request to come again later."""


class _Broken(Unavailable):
    """A failure of the service, or of the way to it."""


class _Silent(Unavailable):
    """No answer in the time that was left."""


class RemoteRewards:
    """`Rewards` that are asked for over HTTP. Safe to share between threads."""

    def __init__(self, settings: RemoteRewardSettings) -> None:
        self._task_seconds = settings.task_seconds
        self._url = settings.url if urlsplit(settings.url).path.strip("/") else _with_path(settings)
        self._session = DirectSession(CONNECTIONS)
        self._session.headers.update({"Content-Type": codec.JSON, "Accept": codec.JSON})
        if settings.token:
            self._session.headers["Authorization"] = f"Bearer {settings.token}"

    def score(self, task: ScoreTask) -> Grade:
        try:
            body = codec.encode_json(task)
        except (TypeError, ValueError) as error:  # also text that is not Unicode
            raise GraderFailed(f"a task cannot be sent: {error}") from error
        patience = Backoff(max_seconds=2.0, total_seconds=self._task_seconds)
        ends_at, breakdowns = time.monotonic() + self._task_seconds, 0
        failure: Unavailable | None = None
        for delay in patience.delays():
            try:
                return self._ask(body, ends_at - time.monotonic())
            except _Busy as error:
                failure = error
            except _Broken as error:
                failure, breakdowns = error, breakdowns + 1
                if breakdowns > _RETRIES:
                    break
            except _Silent as error:  # asked with little time left, it says less than it did before
                raise (failure or error) from None
            time.sleep(delay)
        raise failure or Unavailable(f"the reward service at {self._url} had no time")

    def close(self) -> None:
        self._session.close()

    def _ask(self, body: bytes, seconds: float) -> Grade:
        seconds = max(0.001, seconds)
        timeout = (min(seconds, MAX_CONNECT_SECONDS), seconds)
        try:
            answer = self._session.post(self._url, body, timeout=timeout)
        except requests.ReadTimeout:
            problem = f"no answer from the reward service at {self._url} in {seconds:.1f} s"
            raise _Silent(problem) from None
        except requests.RequestException as error:
            refused = refusal(error, self._url)
            why = str(refused.reason) if refused else type(error).__name__
            problem = f"no answer from the reward service at {self._url}: {why}"
            raise _Broken(problem) from None  # the chain would be 100 lines of urllib3
        if answer.status_code == HTTPStatus.OK:
            return self._read(answer.content)
        reason = f"the reward service at {self._url} {_refusal(answer)}"
        if answer.status_code in _REFUSED:
            raise GraderFailed(reason)
        if answer.status_code in _BUSY:
            raise _Busy(reason)
        raise (_Broken if answer.status_code >= 500 else Unavailable)(reason)

    def _read(self, content: bytes) -> Grade:
        try:
            answer = codec.decode_json(content, _Answer)
            return Grade(float(answer.score), answer.components, answer.metrics, answer.reason)
        except InvalidMessage as error:
            raise _Broken(
                f"the reward service at {self._url} gave an unusable answer: {error.message}"
            ) from error


def _with_path(settings: RemoteRewardSettings) -> str:
    return settings.url.rstrip("/") + PATH


def _refusal(answer: requests.Response) -> str:
    """What a service said that gave no grade."""
    try:
        said = codec.decode_json(answer.content, Failure).message
    except InvalidMessage:
        said = " ".join(answer.content[:_MAX_SHOWN_BYTES].decode(errors="replace").split())
    return f"answered {answer.status_code}" + (f": {said}" if said else "")
