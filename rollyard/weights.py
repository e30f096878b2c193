"""What a trainer does with the weights that the LLM servers serve."""

from array import array
from pathlib import Path

from rollyard.connection import Connection
from rollyard.messages import ScoreRequest, Scores, WeightReport, WeightUpdate, WeightVersion

UPDATE_SECONDS = 660.0
"""A little more than the orchestrator itself waits for the LLM servers."""


class Weights:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def update(self, path: Path | str, version: int) -> WeightReport:
        update = WeightUpdate(path=str(path), version=version)
        return self._connection.call(
            lambda peer: peer.post("/weights", update, WeightReport, timeout_seconds=UPDATE_SECONDS)
        )

    def version(self) -> int:
        return self._connection.call(lambda peer: peer.get("/weights", WeightVersion)).version

    def score(self, token_ids: "array[int]") -> "dict[str, array[float]]":
        request = ScoreRequest(token_ids=token_ids)
        return self._connection.call(lambda peer: peer.post("/score", request, Scores)).logprobs
