"""verifiers: an environment server with two workers, as prime-rl hosts it, and its client.

What is killed is a worker, which the server starts again. `ClientConfig` is as verifiers has it: a
request is repeated ten times.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable

import psutil
from verifiers.types import ClientConfig, RolloutInput, RolloutOutput

from benchmarks.peers.entrants import entrant
from benchmarks.peers.entrants.verifiers_environment import load_environment

ENVIRONMENT = "benchmarks.peers.entrants.verifiers_environment"
WORKERS = 2
SAMPLING = {"max_tokens": 256}
START_SECONDS = 120.0


async def main() -> None:
    options = entrant.parse()
    os.environ["OPENAI_API_KEY"] = "none"
    environment = load_environment(questions=options.questions)
    environment.env_id, environment.env_args = ENVIRONMENT, {"questions": options.questions}
    await environment.start_server(num_workers=WORKERS, console_logging=False)
    try:
        workers = await _workers()
        client = ClientConfig(api_base_url=f"{options.llm}/v1", api_key_var="OPENAI_API_KEY")
        rows = environment.get_dataset().to_list()

        async def play(question: int) -> RolloutOutput:
            row: RolloutInput = {**rows[question], "example_id": question, "task": ENVIRONMENT}
            return await environment.run_rollout(row, client, "policy", SAMPLING)

        await asyncio.gather(*(play(0) for _ in workers))  # they take some seconds to be ready
        entrant.ready(workers)
        await _play_all(play, options)
        entrant.done()
    finally:
        await environment.stop_server()


async def _play_all(
    play: Callable[[int], Awaitable[RolloutOutput]], options: entrant.Options
) -> None:
    free = asyncio.Semaphore(options.slots)

    async def say(question: int) -> None:
        async with free:
            try:
                output = await play(question)
            except Exception as error:
                return entrant.failed(question, repr(error))
        if output.get("error") is not None:
            return entrant.failed(question, str(output["error"]))
        return entrant.finished(question, float(output["reward"]))

    await asyncio.gather(*(say(question) for question in options.tasks))


async def _workers() -> list[int]:
    """Process ids of the workers, once they are there."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            found = [each for server in _children(psutil.Process()) for each in _children(server)]
            if len(found) == WORKERS:
                return [each.pid for each in found]
            await asyncio.sleep(0.1)


def _children(process: psutil.Process) -> list[psutil.Process]:
    """The processes that it has started, without those that Python's multiprocessing did."""
    children = process.children()
    return [each for each in children if "resource_tracker" not in " ".join(each.cmdline())]


if __name__ == "__main__":
    asyncio.run(main())
