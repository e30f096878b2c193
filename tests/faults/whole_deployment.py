"""All that `rollyard up` starts, and a trainer, as processes that a test kills and starts again.

- The commands are those of the launcher's plan; what ends the launcher is survived here.
- A process comes back where it was: same port, same directory, same command.
"""

import contextlib
import signal
from collections.abc import Iterator

from launch.local import is_ready
from launch.plan import DeploymentSettings, local_plan
from launch.process_spec import ProcessSpec
from launch.processes import Started, module_command, start_process
from launch.readiness import wait_until_ready
from rollyard.api import OrchestratorAPI, RunAPI
from rollyard.left_files import left_for_clients
from rollyard.tokens import make_password_file, make_token_file
from tests.faults.training import RUN_ID, Step, read_steps
from tests.waiting import until

STEP_SECONDS = 600.0
"""For the next step of training after a fault, on a machine that has other work to do."""


class WholeDeployment:
    """`services` are the processes of the plan, in the order in which they start."""

    def __init__(self, settings: DeploymentSettings, seed: int) -> None:
        self._plan = {spec.name: spec for spec in local_plan(settings)}
        self._directory = settings.directory
        self._running: dict[str, Started] = {}
        self.services = tuple(self._plan)
        self.url = self._plan["orchestrator"].url
        self._trainer = module_command(
            "tests.faults.training",
            *("--url", self.url, "--directory", str(settings.directory)),
            *("--seed", str(seed), "--model", str(settings.model)),
        )
        settings.directory.mkdir(parents=True)
        make_token_file(settings.token_file)
        make_password_file(settings.redis_password_file)

    def start(self, name: str) -> None:
        """It may take a while until it is ready."""
        command = self._trainer if name == "trainer" else self._plan[name].command
        log = self._directory / "logs" / f"{name}.log"
        self._running[name] = start_process(name, command, log)

    def start_all(self) -> None:
        for name in (*self.services, "trainer"):
            self.start(name)
        for name in self.services:
            self.wait_until_ready(self._plan[name])

    def wait_until_ready(self, spec: ProcessSpec) -> None:
        wait_until_ready(self._running[spec.name], lambda: is_ready(spec), spec.ready_seconds)

    def stop_all(self) -> None:
        """As the launcher does: each in its own time, in reverse order."""
        for name in reversed((*self.services, "trainer")):
            self._running[name].stop()

    def kill(self, name: str) -> None:
        self._running[name].kill()

    def kill_trainer_between_steps(self) -> None:
        """When all that it trained on is acknowledged: it will not publish that again, which would
        mend LLM servers that lost it."""
        run = RunAPI(OrchestratorAPI(self.url), RUN_ID)

        def stands_between_steps() -> bool:
            self._running["trainer"].signal(signal.SIGSTOP)
            if self.steps()[-1].batch_id not in run.status().batches:
                return True
            self._running["trainer"].signal(signal.SIGCONT)
            return False

        until("the trainer is between two steps", stands_between_steps, STEP_SECONDS)
        self.kill("trainer")

    def steps(self) -> list[Step]:
        """What the trainer has trained on so far."""
        return read_steps(self._directory)

    def wait_for_steps(self, more: int) -> None:
        """Until the trainer has made so many more steps."""
        goal = len(self.steps()) + more

        def reached() -> bool:
            code = self._running["trainer"].process.poll()
            assert code is None, f"the trainer ended: see {self._directory}/logs/trainer.log"
            return len(self.steps()) >= goal

        until(f"{more} more steps of training", reached, STEP_SECONDS)

    def close(self) -> None:
        for started in self._running.values():
            started.kill()


@contextlib.contextmanager
def whole_deployment(settings: DeploymentSettings, seed: int) -> Iterator[WholeDeployment]:
    deployment = WholeDeployment(settings, seed)
    with left_for_clients(deployment.url, settings.token_file):
        try:
            yield deployment
        finally:
            deployment.close()
