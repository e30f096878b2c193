"""`python server.py PORT GAME SESSIONS`: a server that speaks the public contract of OpenEnv.

It needs starlette and uvicorn, so that it runs in vLLM's environment. Its games take some words for
faults: `crash` raises, `hang` never answers, `leave` closes the connection, `die` ends the server.
"""

import json
import os
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

Seen = dict[str, Any]


class Refused(Exception):
    """An action that is none of the game's."""


def _seen(observation: dict[str, Any], reward: float | None = None, done: bool = False) -> Seen:
    return {"observation": observation, "reward": reward, "done": done}


def _schema(**fields: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in fields.items()}
    return {
        "title": "Action",
        "description": "One move.",
        "type": "object",
        "properties": {"metadata": {"type": "object"}, **properties},
        "required": list(fields),
    }


class Guess:
    """A number is guessed in three moves, each of which is a text."""

    schema = _schema(message="string")

    def reset(self, seed: int = 4) -> Seen:
        self.secret, self.moves = seed, 0
        return _seen({"prompt": "Which number from 1 to 9?", "left": 3})

    def step(self, action: dict[str, Any]) -> Seen:
        said = action["message"]
        if not said.strip().isdigit():
            raise Refused([{"loc": ["message"], "msg": "is no number"}])
        self.moves += 1
        right = int(said) == self.secret
        hint = "right" if right else "higher" if int(said) < self.secret else "lower"
        seen = _seen(
            {"prompt": hint, "left": 3 - self.moves}, float(right), right or self.moves > 2
        )
        return {**seen, "metadata": {"moves": self.moves, "note": "none"}}


class Treasure:
    """A treasure is dug for, by an action of two fields."""

    schema = _schema(row="integer", column="integer")

    def reset(self, seed: int = 4) -> Seen:
        self.place = (seed, seed)
        return _seen({"map": "?"})

    def step(self, action: dict[str, Any]) -> Seen:
        found = (action["row"], action["column"]) == self.place
        return _seen({"map": "x" if found else "?"}, 2.5 if found else -1, found)


class Tools:
    """A sum is computed and submitted by calls of tools."""

    schema = _schema(tool_name="string", arguments="object")

    def reset(self, seed: int = 4) -> Seen:
        return _seen({})

    def step(self, action: dict[str, Any]) -> Seen:
        if action.get("type") == "list_tools":
            integers = {"type": "object", "properties": {"a": {"type": "integer"}}}
            named = ("add_three", "submit", "broken", "wrong")
            return _seen(
                {"tools": [{"name": n, "description": n, "input_schema": integers} for n in named]}
            )
        name, given = action["tool_name"], action["arguments"].get("a", 0)
        observation: dict[str, Any] = {"tool_name": name, "result": None, "error": None}
        if name == "broken":
            observation["error"] = {"error_type": "transport_error", "message": "no route"}
        elif name == "wrong":
            observation["error"] = {"error_type": "execution_error", "message": "division by zero"}
        elif name == "submit":
            return _seen({**observation, "result": "done"}, float(given == 7), True)
        else:
            observation["result"] = {"content": [{"type": "text", "text": str(given + 3)}]}
        return _seen(observation)


class Unrewarded(Guess):
    """An episode that ends and never had a reward."""

    def step(self, action: dict[str, Any]) -> Seen:
        return _seen({"prompt": "over"}, None, True)


GAMES: dict[str, Any] = {
    "guess": Guess,
    "treasure": Treasure,
    "tools": Tools,
    "unrewarded": Unrewarded,
}


class Server:
    def __init__(self, game: str, sessions: int) -> None:
        self.make, self.sessions, self.most = GAMES[game], 0, sessions

    async def status(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": "healthy", "sessions": self.sessions})

    async def schemas(self, request: Request) -> JSONResponse:
        return JSONResponse({"action": self.make.schema, "observation": {}, "state": {}})

    async def play(self, socket: WebSocket) -> None:
        await socket.accept()
        if self.sessions >= self.most:
            await _error(socket, "CAPACITY_REACHED", "no room for another session")
            await socket.close()
            return
        self.sessions += 1
        try:
            await self._play(socket, self.make())
        except WebSocketDisconnect:
            pass
        finally:
            self.sessions -= 1

    async def _play(self, socket: WebSocket, game: Any) -> None:
        while True:
            asked = json.loads(await socket.receive_text())
            try:
                await _fault(socket, asked["data"].get("message"))
                seen = (
                    game.reset(**asked["data"])
                    if asked["type"] == "reset"
                    else game.step(asked["data"])
                )
            except Refused as error:
                await _error(socket, "VALIDATION_ERROR", "Invalid message", errors=error.args[0])
            except (KeyError, TypeError, ValueError) as error:
                await _error(socket, "EXECUTION_ERROR", str(error))
            else:
                await socket.send_text(json.dumps({"type": "observation", "data": seen}))


async def _fault(socket: WebSocket, word: str | None) -> None:
    if word == "crash":
        raise ValueError("the board is gone")
    if word == "hang":
        await socket.receive_text()
    if word == "leave":
        await socket.close(1011, "going home")
        raise WebSocketDisconnect
    if word == "nonsense":
        await socket.send_text('["nonsense"]')
    if word == "die":
        os._exit(1)


async def _error(socket: WebSocket, code: str, message: str, **more: Any) -> None:
    data = {"code": code, "message": message, **more}
    await socket.send_text(json.dumps({"type": "error", "data": data}))


def main() -> None:
    port, game, sessions = sys.argv[1:]
    server = Server(game, int(sessions))
    routes = [
        Route("/health", server.status),
        Route("/schema", server.schemas),
        WebSocketRoute("/ws", server.play),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
