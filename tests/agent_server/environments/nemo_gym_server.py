"""A resources server that is written from NeMo-Gym's contract, and its rows."""

from typing import Any

from flask import Flask, request, session
from flask.typing import ResponseReturnValue

QUESTION = {"role": "user", "content": "Add 1, then add 2."}
ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
}


class Counter:
    """A server whose sessions count, and whose verifier compares the count, or the last words."""

    def __init__(self) -> None:
        self.verified: list[dict[str, Any]] = []
        self.trouble: tuple[str, int] | None = None
        """Route that fails, and the status that it answers."""

    def app(self) -> Flask:
        app = Flask("counter")
        app.secret_key = "counter"
        app.before_request(self._fail)
        app.post("/seed_session")(self.seed)
        app.post("/add")(self.add)
        app.post("/verify")(self.verify)
        return app

    def _fail(self) -> ResponseReturnValue | None:
        if self.trouble is not None and request.path == f"/{self.trouble[0]}":
            return "RuntimeError('no disk')", self.trouble[1]
        return None

    def seed(self) -> ResponseReturnValue:
        session["count"] = request.get_json().get("initial_count", 0)
        return {}

    def add(self) -> ResponseReturnValue:
        if "count" not in request.get_json():
            return {"detail": "count is missing"}, 422
        session["count"] += request.get_json()["count"]
        return {"success": True}

    def verify(self) -> ResponseReturnValue:
        asked: dict[str, Any] = request.get_json()
        self.verified.append(asked)
        output = asked["response"]["output"]
        words = [item["content"][0]["text"] for item in output if item["type"] == "message"]
        right = asked.get("expected_count") == session["count"] or asked.get("word") in words
        return asked | {"reward": float(right), "count": session["count"], "note": "none"}


def row(url: str, *, tools: bool = True, **fields: Any) -> dict[str, Any]:
    asked = {"input": [QUESTION], "tools": [ADD] if tools else []}
    return {"data_source": "nemo_gym", "url": url, "responses_create_params": asked} | fields
