"""aiohttp posting jobs to a no-op server: no queue, and nothing durable."""

import asyncio
import multiprocessing
import time

import aiohttp
from aiohttp import web

from benchmarks.dispatch.peers.job import BODY, answer

IN_FLIGHT = 128
HOST = "127.0.0.1"


async def _reward(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({"reward": 1.0})


async def _serve(ready: "multiprocessing.SimpleQueue[int]") -> None:
    app = web.Application()
    app.router.add_post("/jobs", _reward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    ready.put(runner.addresses[0][1])
    await asyncio.Event().wait()


def _server(ready: "multiprocessing.SimpleQueue[int]") -> None:
    asyncio.run(_serve(ready))


async def _post(session: aiohttp.ClientSession, url: str, jobs: int) -> float:
    body = {"job_id": "j", "prompt": BODY}
    left = iter(range(jobs))

    async def client() -> None:
        for _ in left:
            async with session.post(url, json=body) as reply:
                await reply.json()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(IN_FLIGHT)))
    return time.perf_counter() - began


async def _measure(port: int, jobs: int) -> float:
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"http://{HOST}:{port}/jobs"
        await _post(session, url, 200)
        return await _post(session, url, jobs)


def measure(jobs: int, _redis_port: int) -> float:
    ready: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
    server = multiprocessing.Process(target=_server, args=(ready,), daemon=True)
    server.start()
    try:
        return asyncio.run(_measure(ready.get(), jobs))
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    answer(measure)
