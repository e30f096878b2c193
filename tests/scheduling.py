"""Which tests run in one process, when they run in several."""

from xdist.scheduler import LoadScopeScheduling

VLLM = "vllm"


def scope_of(test: str) -> str:
    """What is named after vLLM needs the real one, which costs most of a minute and 3 GB: one
    process has it. All others share what their module starts."""
    return VLLM if VLLM in test else test.partition("::")[0]


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
