"""The guards that keep a failure from being a reward, and a row from being blamed for a machine."""

from tests.guards.guard import Guard

LOCAL = "tests/agent_server/rewards/test_local.py"
REMOTE = "tests/agent_server/rewards/test_remote.py"
SERVICE = "tests/reward_service/test_app.py"
FAULTS = "tests/reward_service/test_faults.py"

GUARDS_OF_REWARDS = (
    Guard(
        "a process that was killed while idle costs no task",
        "agent_server/rewards/local.py",
        "                if not was_idle:  # it may have been lost before it had the task\n"
        "                    raise\n",
        "                raise\n",
        LOCAL,
    ),
    Guard(
        "a process that is killed from outside is not the row's fault",
        "agent_server/rewards/grader_process.py",
        "        if end.exit_code == -SIGKILL:",
        "        if end.exit_code == 0:",
        LOCAL,
    ),
    Guard(
        "a service that is away is not the row's fault, even without a grader here",
        "agent_server/rewards/fallback.py",
        "        except NoGrader:\n            raise missed from None\n",
        "",
        REMOTE,
    ),
    Guard(
        "what a service refuses is not asked about again",
        "agent_server/rewards/remote.py",
        "            raise GraderFailed(reason)\n",
        "            raise _Broken(reason)\n",
        REMOTE,
    ),
    Guard(
        "a reward service takes only so many tasks",
        "reward_service/task_count.py",
        "            if self._tasks + tasks > self._most_tasks:\n",
        "            if self._tasks > self._most_tasks:\n",
        SERVICE,
    ),
    Guard(
        "a task whose work horse is killed is tried again",
        "reward_service/worker.py",
        "        if not isinstance(error, Unavailable):\n            job.retries_left = None\n",
        "        job.retries_left = None\n",
        FAULTS,
    ),
)
