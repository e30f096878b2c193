"""The guards of graders: what the policy wrote decides its grade, and cannot forge it."""

from tests.guards.guard import Guard

REWARDS = "agent_server/rewards"
TAMPERING = "tests/agent_server/rewards/test_tampering.py"
PROGRAMS = "tests/agent_server/environments/test_code.py"

GUARDS_OF_GRADING = (
    Guard(
        "a program is graded where its agent never was",
        "agent_server/environments/code.py",
        "with self.sandbox.fresh() as fresh:",
        "fresh = self.sandbox\n        if True:",
        TAMPERING,
    ),
    Guard(
        "a function's output is no result",
        f"{REWARDS}/programs.py",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n",
        "",
        PROGRAMS,
    ),
    Guard(
        "a program that fails has no result",
        f"{REWARDS}/programs.py",
        "if ended.exit_code != 0:",
        "if False:",
        PROGRAMS,
    ),
    Guard(
        "true is not 1",
        f"{REWARDS}/comparison.py",
        "return expected is returned\n",
        "return bool(expected == returned)\n",
        f"tests/{REWARDS}/test_comparison.py",
    ),
    Guard(
        "a box in the reasoning is no answer",
        f"{REWARDS}/answers.py",
        "        if closed:\n            return behind\n",
        "",
        TAMPERING,
    ),
    Guard(
        "a computation ends within its CPU time",
        f"{REWARDS}/bounded.py",
        "        _limit(resource.RLIMIT_CPU, CPU_SECONDS)\n",
        "",
        f"tests/{REWARDS}/test_bounded.py",
    ),
)
