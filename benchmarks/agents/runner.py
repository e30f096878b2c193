"""An agent server without its door: `python -m benchmarks.agents.runner`.

The production job runner, agent, LLM client and sandboxes, in a process of their own, run so many
Jobs at once; one line of JSON says what the process has spent once all have ended. The
conversation has so many turns and short observations.
"""

import argparse
import queue
import resource
from pathlib import Path

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tool_loop import ToolLoop
from agent_server.environments.in_thread import in_thread
from agent_server.environments.protocol import Needs, Observation, Response
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.metrics import Metrics
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
from agent_server.sandbox.warm_pool import WarmPool
from rollyard.messages import (
    Assignment,
    ChatMessage,
    Job,
    Lease,
    Limits,
    Outcome,
    Prompt,
    Result,
    Sampling,
)
from serving import logs
from serving.log_format import LogFormat

MODEL = Path(__file__).parents[2] / "examples" / "arithmetic" / "policy"
JOB_SECONDS = 300.0
OBSERVATION = "the build has failed: three tests of forty, see the log for the first of them"


class Spent(msgspec.Struct, frozen=True):
    """Cost of all Jobs together."""

    jobs: int
    turns: int
    completed: int
    cpu_seconds: float
    """Processor time of the process from the first Job to the last Result, without sandboxes'."""


class Talk:
    """A conversation of `instance["turns"]` turns, with nothing to do in between."""

    needs = Needs()

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self._left = int(prompt.instance["turns"])
        return (ChatMessage(role="user", content="mend the tests of this repository"),)

    def step(self, response: Response) -> Observation:
        self._left -= 1
        if self._left == 0:
            return Observation(done=True)
        return Observation(messages=(ChatMessage(role="tool", content=OBSERVATION),))

    def grade(self) -> float:
        return 1.0


class TalkInSandbox(Talk):
    needs = Needs(sandbox=SandboxNeeds())


def assignment(number: int, turns: int, source: str) -> Assignment:
    job = Job(
        job_id=f"bench/{number // 8}/{number % 8}",
        run_id="bench",
        group_id=str(number // 8),
        member=number % 8,
        prompt=Prompt(prompt_id=str(number // 8), instance={"data_source": source, "turns": turns}),
        sampling=Sampling(max_response_tokens=256),
        limits=Limits(max_turns=turns, max_tokens=16_384, job_seconds=JOB_SECONDS),
    )
    lease = Lease(job_id=job.job_id, attempt=1, server_id="bench", slot=f"bench#{number}")
    return Assignment(job=job, lease=lease)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.agents.runner", description=__doc__)
    parser.add_argument("--llm", required=True, metavar="URL")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--sandboxes", action="store_true", help="every job holds one")
    options = parser.parse_args()
    logs.configure("bench", LogFormat.TEXT)
    results: queue.Queue[Result] = queue.Queue()
    maker = Bubblewrap(SandboxSettings())
    pool = WarmPool(maker, 0)
    stages = Stages(
        environments={"talk": in_thread(Talk), "talk_in_sandbox": in_thread(TalkInSandbox)},
        agents={"tool_loop": ToolLoop},
        sandboxes=pool,
        policy=LLMClient(LLMSettings(servers=(options.llm,))),
        template=ChatTemplate.load(MODEL),
    )
    runner = JobRunner(RunnerSettings(slots=options.jobs), stages, Metrics(), results.put)
    source = "talk_in_sandbox" if options.sandboxes else "talk"
    before = _cpu_seconds()
    for number in range(options.jobs):
        runner.accept(assignment(number, options.turns, source))
    ended = [results.get(timeout=JOB_SECONDS) for _ in range(options.jobs)]
    spent = Spent(
        jobs=len(ended),
        turns=sum(len(each.trajectory.turns) for each in ended if each.trajectory),
        completed=sum(each.outcome is Outcome.COMPLETED for each in ended),
        cpu_seconds=round(_cpu_seconds() - before, 3),
    )
    print(msgspec.json.encode(spent).decode(), flush=True)
    runner.close(5)
    pool.close()
    maker.close()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
